// Command tasks is the twin in Go of the experiment of tasks that only compute: a goroutine for each task.
//
// It reads requests from standard input, a line of JSON each, and answers each with a line for every task, in the order of
// their numbers, and one that ends the answer. It ends where its input does.
//
//	{"starts":[[0.1,0.2,0.3]],"steps":1000,"order":"as_described","batch":0}
//	{"task":1,"submitted_ns":100,"started_ns":900,"finished_ns":2000,"cpu_ns":null,"bits":4598175219545276416}
//	{"process_cpu_ns":1000000}
//
// With -cpu every goroutine is locked to a thread of its own while it runs its task, so that the kernel can say what the
// task took of a core's time. That changes what is measured: the kernel schedules the tasks then, not Go.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// request asks for tasks that are run at once, or so many at a time where batch is not 0.
type request struct {
	Starts [][3]float64 `json:"starts"`
	Steps  uint64       `json:"steps"`
	Order  string       `json:"order"`
	Batch  int          `json:"batch"`
	Check  bool         `json:"check"` // whether each step looks for convergence, as in the published code
}

// ran is a task that was run; its times are in nanoseconds from the moment at which the request was read.
type ran struct {
	Task        int    `json:"task"`
	SubmittedNs int64  `json:"submitted_ns"`
	StartedNs   int64  `json:"started_ns"`
	FinishedNs  int64  `json:"finished_ns"`
	CPUNs       *int64 `json:"cpu_ns"`
	Bits        uint64 `json:"bits"`
}

type done struct {
	ProcessCPUNs int64 `json:"process_cpu_ns"`
}

type failed struct {
	Error string `json:"error"`
}

// The orders of the recurrence: as its text has it, and as its published code has it.
const (
	asDescribed = "as_described"
	asPublished = "as_published"
)

// described is the last of so many terms more of A(n) = A(n-1) + A(n-2) - A(n-3), or the reciprocal of that where its
// absolute value is not below 1.
func described(start [3]float64, steps uint64) float64 {
	third, second, first := start[0], start[1], start[2]
	for range steps {
		sum := first + second - third
		if math.Abs(sum) >= 1 {
			sum = 1 / sum
		}
		third, second, first = second, first, sum
	}
	return first
}

// published is the same of A(n-3) + A(n-2) - A(n-1).
func published(start [3]float64, steps uint64) float64 {
	third, second, first := start[0], start[1], start[2]
	for range steps {
		sum := third + second - first
		if math.Abs(sum) >= 1 {
			sum = 1 / sum
		}
		third, second, first = second, first, sum
	}
	return first
}

// equal is how near terms are that count as equal; inARow is how many of them are a limit.
const (
	equal  = 1e-15
	inARow = 3
)

// limits keeps what the checks find, so that no compiler leaves them out.
var limits atomic.Uint64

// describedChecked is described with the published check in each step.
func describedChecked(start [3]float64, steps uint64) float64 {
	third, second, first := start[0], start[1], start[2]
	row, limit := 0, uint64(0)
	for step := range steps {
		sum := first + second - third
		if math.Abs(sum) >= 1 {
			sum = 1 / sum
		}
		if math.Abs(first-sum) <= equal {
			row++
		} else {
			row = 0
		}
		if row == inARow && limit == 0 {
			limit = step
		}
		third, second, first = second, first, sum
	}
	limits.Add(limit)
	return first
}

// publishedChecked is published with the check. The order is no argument: a test of it in each step would take time that Rust does not need.
func publishedChecked(start [3]float64, steps uint64) float64 {
	third, second, first := start[0], start[1], start[2]
	row, limit := 0, uint64(0)
	for step := range steps {
		sum := third + second - first
		if math.Abs(sum) >= 1 {
			sum = 1 / sum
		}
		if math.Abs(first-sum) <= equal {
			row++
		} else {
			row = 0
		}
		if row == inARow && limit == 0 {
			limit = step
		}
		third, second, first = second, first, sum
	}
	limits.Add(limit)
	return first
}

// rusageThread is RUSAGE_THREAD of getrusage(2), which package syscall does not name.
const rusageThread = 1

// spent is what a thread or the process took of the cores' time so far, in nanoseconds.
func spent(who int) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(who, &usage); err != nil {
		return 0 // the constants are right, and nothing else can be wrong
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// run runs the tasks that are asked for, a goroutine each.
func run(asked request, locked bool) ([]ran, error) {
	var last func([3]float64, uint64) float64
	switch asked.Order {
	case asDescribed:
		last = described
		if asked.Check {
			last = describedChecked
		}
	case asPublished:
		last = published
		if asked.Check {
			last = publishedChecked
		}
	default:
		return nil, fmt.Errorf("there is no order %q", asked.Order)
	}
	if asked.Batch < 0 {
		return nil, fmt.Errorf("batches of %d", asked.Batch)
	}
	count := len(asked.Starts)
	batch := asked.Batch
	if batch == 0 {
		batch = max(count, 1)
	}
	base := time.Now()
	now := func() int64 { return time.Since(base).Nanoseconds() }
	all := make([]ran, count)
	task := func(number int, group *sync.WaitGroup) {
		defer group.Done()
		one := &all[number]
		var before int64
		if locked {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		one.StartedNs = now()
		if locked {
			before = spent(rusageThread)
		}
		one.Bits = math.Float64bits(last(asked.Starts[number], asked.Steps))
		if locked {
			cpu := spent(rusageThread) - before
			one.CPUNs = &cpu
		}
		one.FinishedNs = now()
	}
	for first := 0; first < count; first += batch {
		var group sync.WaitGroup
		for number := first; number < min(first+batch, count); number++ {
			all[number].Task = number + 1
			group.Add(1)
			all[number].SubmittedNs = now()
			go task(number, &group)
		}
		group.Wait()
	}
	return all, nil
}

// serve answers requests until there are no more.
func serve(requests io.Reader, answers io.Writer, locked bool) error {
	decoder := json.NewDecoder(requests)
	out := bufio.NewWriter(answers)
	encoder := json.NewEncoder(out)
	for {
		var asked request
		if err := decoder.Decode(&asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("this is no request: %w", err)
		}
		before := spent(syscall.RUSAGE_SELF)
		all, err := run(asked, locked)
		cpu := spent(syscall.RUSAGE_SELF) - before
		if err != nil {
			err = encoder.Encode(failed{err.Error()})
		} else {
			err = encodeAll(encoder, all, cpu)
		}
		if err := errors.Join(err, out.Flush()); err != nil {
			return err
		}
	}
}

func encodeAll(encoder *json.Encoder, all []ran, cpu int64) error {
	for _, one := range all {
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	return encoder.Encode(done{cpu})
}

func main() {
	locked := flag.Bool("cpu", false, "lock every goroutine to a thread, and say what it takes of a core's time")
	workers := flag.Int("workers", 0, "GOMAXPROCS: how many goroutines run at a time; 0 is as many as there are cores")
	flag.Parse()
	if flag.NArg() > 0 || *workers < 0 {
		fmt.Fprintln(os.Stderr, "usage: tasks [-cpu] [-workers N]")
		os.Exit(2)
	}
	if *workers > 0 {
		runtime.GOMAXPROCS(*workers)
	}
	if err := serve(os.Stdin, os.Stdout, *locked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
