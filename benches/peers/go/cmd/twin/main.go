// Command twin is the twin of the published entity server: a channel of connections, N goroutines, and the entities
// behind read-write locks or in a sync.Map.
package main

import (
	"flag"
	"os"
	"runtime"

	"polyserve/peers/internal/run"
	"polyserve/peers/internal/service"
	"polyserve/peers/internal/store"
	"polyserve/peers/internal/twin"
)

// perCore is the default number of goroutines per core. It is the same as the number of threads per core in polyserve's
// pools.
const perCore = 4

func main() {
	var kind, lines string
	flags := func(flags *flag.FlagSet) {
		flags.StringVar(&kind, "store", "rwmutex", "where the entities are: rwmutex or syncmap")
		flags.StringVar(&lines, "print", "", "the file that gets a line for each request")
	}
	os.Exit(run.Main("twin", flags, func(options run.Options) (run.Server, error) {
		entities, err := store.New(kind)
		if err != nil {
			return nil, err
		}
		answers := service.New(entities)
		if lines != "" {
			file, err := os.OpenFile(lines, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
			if err != nil {
				return nil, err
			}
			answers.PrintTo(file)
		}
		goroutines := options.Workers
		if goroutines == 0 {
			goroutines = runtime.GOMAXPROCS(0) * perCore
		}
		return twin.New(answers, goroutines), nil
	}))
}
