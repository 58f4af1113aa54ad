// Command tasks is article B in Go: a goroutine for each task, and a WaitGroup. The three terms are one array, which is
// passed by value. Each step computes the next triplet, compares all three terms with the last triplet, and so finds out
// whether the sequence has converged.
//
// Deviations from the listing: the tasks come from standard input and the times go to standard output, by the protocol of
// `polyserve task-runner`; times are in nanoseconds, and the listing has whole milliseconds; the starting terms
// come from the request, and the listing draws them inside the task; convergence is kept, and the listing prints a line;
// the last term is returned, so that it can be verified; -workers sets GOMAXPROCS.
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
	"syscall"
	"time"
)

type triplet = [3]float64

type request struct {
	Starts []triplet `json:"starts"`
	Steps  uint64    `json:"steps"`
	Order  string    `json:"order"`
	Batch  int       `json:"batch"`
}

type ran struct {
	Task        int    `json:"task"`
	SubmittedNs int64  `json:"submitted_ns"`
	StartedNs   int64  `json:"started_ns"`
	FinishedNs  int64  `json:"finished_ns"`
	CPUNs       *int64 `json:"cpu_ns"` // not known for a goroutine
	Bits        uint64 `json:"bits"`
	converged   int64  // the step from which the sequence stands still, or -1
}

// order is the published order, the only one that this program has.
const order = "as_published"

func nextTriplet(t triplet) triplet {
	term := t[0] + t[1] - t[2]
	if math.Abs(term) <= 1.0 {
		return triplet{t[1], t[2], term}
	}
	return triplet{t[1], t[2], 1.0 / term}
}

func nearlyEqual(one, other float64) bool {
	return math.Abs(one-other) < 1e-14
}

func hasConverged(t, next triplet) bool {
	return nearlyEqual(t[0], next[0]) && nearlyEqual(t[1], next[1]) && nearlyEqual(t[2], next[2])
}

// iterate returns the last term, and the step from which the sequence stands still, or -1.
func iterate(first triplet, steps uint64) (float64, int64) {
	t, converged := first, int64(-1)
	for step := range steps {
		next := nextTriplet(t)
		if hasConverged(t, next) && converged < 0 {
			converged = int64(step)
		}
		t = next
	}
	return t[2], converged
}

func run(asked request) []ran {
	base := time.Now()
	now := func() int64 { return time.Since(base).Nanoseconds() }
	all := make([]ran, len(asked.Starts))
	series := asked.Batch
	if series <= 0 {
		series = max(len(all), 1)
	}
	for task := 0; task < len(all); {
		var running sync.WaitGroup
		for inSeries := 0; task < len(all) && inSeries < series; inSeries++ {
			running.Add(1)
			all[task] = ran{Task: task + 1, SubmittedNs: now()}
			go func(task int) {
				one := &all[task]
				one.StartedNs = now()
				last, converged := iterate(asked.Starts[task], asked.Steps)
				one.Bits, one.converged = math.Float64bits(last), converged
				one.FinishedNs = now()
				running.Done()
			}(task)
			task++
		}
		running.Wait()
	}
	return all
}

// spent returns the processor time of the process in nanoseconds.
func spent() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // getrusage fails only for invalid arguments
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func serve(requests io.Reader, answers io.Writer) error {
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
		var err error
		if asked.Order != order {
			err = encoder.Encode(map[string]string{"error": "the listing has one order, " + order})
		} else {
			before := spent()
			all := run(asked)
			cpu := spent() - before
			for _, one := range all {
				err = errors.Join(err, encoder.Encode(one))
			}
			err = errors.Join(err, encoder.Encode(map[string]int64{"process_cpu_ns": cpu}))
		}
		if err := errors.Join(err, out.Flush()); err != nil {
			return err
		}
	}
}

func main() {
	workers := flag.Int("workers", 0, "GOMAXPROCS; 0 is one for each core")
	flag.Parse()
	if flag.NArg() > 0 || *workers < 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *workers > 0 {
		runtime.GOMAXPROCS(*workers)
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
