// Command nethttp has the same entities as the twin, on net/http: a goroutine for each connection.
package main

import (
	"os"
	"runtime"

	"polyserve/peers/internal/run"
	"polyserve/peers/internal/service"
	"polyserve/peers/internal/store"
)

func main() {
	os.Exit(run.Main("nethttp", nil, func(options run.Options) (run.Server, error) {
		if options.Workers > 0 {
			runtime.GOMAXPROCS(options.Workers)
		}
		entities, err := store.New("rwmutex")
		if err != nil {
			return nil, err
		}
		return newServer(service.New(entities)), nil
	}))
}
