// Command tasks is the Go twin of the experiment with tasks that only compute: a goroutine for each task.
//
// It reads requests from standard input, one line of JSON each. The answer to a request is a line per task, in the
// order of the task numbers, and a final line. It exits at the end of standard input.
//
//	{"starts":[[0.1,0.2,0.3]],"steps":1000,"order":"as_described","batch":0}
//	{"task":1,"submitted_ns":100,"started_ns":900,"finished_ns":2000,"cpu_ns":null,"bits":4598175219545276416}
//	{"process_cpu_ns":1000000}
//
// With -cpu, every goroutine is locked to its own thread while it runs its task, so that the kernel can report the
// processor time of the task. This changes what is measured: the kernel then schedules the tasks, not Go.
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

// request has the tasks to run. If batch is 0 they run at once, otherwise in batches of that size.
type request struct {
	Starts [][3]float64 `json:"starts"`
	Steps  uint64       `json:"steps"`
	Order  string       `json:"order"`
	Batch  int          `json:"batch"`
	Check  bool         `json:"check"` // whether each step tests for convergence, as in the published code
}

// ran is the result of a task. Times are in nanoseconds since the request was read.
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

// The orders of the recurrence: as in the published text, and as in the published code.
const (
	asDescribed = "as_described"
	asPublished = "as_published"
)

// described computes the given number of further terms of A(n) = A(n-1) + A(n-2) - A(n-3), and returns the last one. A
// term with an absolute value of 1 or more is replaced by its reciprocal.
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

// published does the same for A(n-3) + A(n-2) - A(n-1).
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

// equal is the max difference of terms that count as equal. inARow is the number of successive equal terms that counts
// as convergence.
const (
	equal  = 1e-15
	inARow = 3
)

// limits adds up the results of the checks, so that the compiler does not remove the checks.
var limits atomic.Uint64

// describedChecked is described with the published convergence check in each step.
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

// publishedChecked is published with the check. The order is not a parameter, because testing it in each step would
// cost time that the Rust code does not spend.
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

// rusageThread is RUSAGE_THREAD of getrusage(2). Package syscall does not define it.
const rusageThread = 1

// spent returns the processor time that the thread or the process has used, in nanoseconds.
func spent(who int) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(who, &usage); err != nil {
		return 0 // getrusage fails only for invalid arguments
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// run runs the requested tasks, one goroutine each.
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

// serve answers requests until the end of the input.
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
