package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestAFewTermsByHand(t *testing.T) {
	start := [3]float64{0.125, 0.25, 0.5}
	for step, want := range []float64{0.5, 0.625, 0.875, 1, 1 / 1.25} {
		if got := described(start, uint64(step)); got != want {
			t.Errorf("described, %d steps: %v, not %v", step, got, want)
		}
	}
	for step, want := range []float64{0.5, -0.125, 0.875, -0.5} {
		if got := published(start, uint64(step)); got != want {
			t.Errorf("published, %d steps: %v, not %v", step, got, want)
		}
	}
}

func TestTheCheckFindsALimit(t *testing.T) {
	for name, last := range map[string]func([3]float64, uint64) float64{"described": describedChecked, "published": publishedChecked} {
		before := limits.Load()
		if got := last([3]float64{0.5, 0.5, 0.5}, 10); got != 0.5 || limits.Load() != before+2 {
			t.Errorf("%s: %v, limits %d", name, got, limits.Load()-before)
		}
	}
}

var starts = [][3]float64{{0.1, 0.2, 0.3}, {0.9, 0.5, 0.1}, {0.3, 0.3, 0.7}, {0.6, 0.1, 0.2}, {0.8, 0.9, 0.4}}

func TestEveryTaskRunsOnceAndSaysWhen(t *testing.T) {
	const steps = 20000
	for _, how := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
		locked, check := how[0], how[1]
		for order, last := range map[string]func([3]float64, uint64) float64{asDescribed: described, asPublished: published} {
			all, err := run(request{starts, steps, order, 0, check}, locked)
			if err != nil || len(all) != len(starts) {
				t.Fatalf("%v, %v", all, err)
			}
			for number, one := range all {
				if one.Task != number+1 || one.Bits != math.Float64bits(last(starts[number], steps)) {
					t.Errorf("%s: %+v", order, one)
				}
				if one.SubmittedNs > one.StartedNs || one.StartedNs >= one.FinishedNs {
					t.Errorf("%s: it ended before it began: %+v", order, one)
				}
				if (one.CPUNs != nil) != locked {
					t.Errorf("%s: only a locked goroutine knows its thread's time: %+v", order, one)
				}
			}
		}
	}
}

func TestABatchStartsWhenTheLastOneHasEnded(t *testing.T) {
	all, err := run(request{starts, 20000, asDescribed, 2, false}, false)
	if err != nil {
		t.Fatal(err)
	}
	for second := 2; second < len(all); second++ {
		for first := range second / 2 * 2 {
			if all[second].SubmittedNs < all[first].FinishedNs {
				t.Errorf("%+v began before %+v had ended", all[second], all[first])
			}
		}
	}
}

func TestRequestsAreAnsweredUntilTheyEnd(t *testing.T) {
	asked := `{"starts":[[0.5,0.5,0.5]],"steps":3,"order":"as_described","batch":0}` + "\n"
	wrong := `{"starts":[],"steps":3,"order":"any","batch":0}` + "\n"
	var answers bytes.Buffer
	if err := serve(strings.NewReader(asked+wrong+asked), &answers, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(answers.String()), "\n")
	if len(lines) != 5 {
		t.Fatalf("%q", lines)
	}
	var one ran
	if err := json.Unmarshal([]byte(lines[0]), &one); err != nil || one.Bits != math.Float64bits(0.5) {
		t.Errorf("%+v, %v", one, err)
	}
	if !strings.Contains(lines[0], `"cpu_ns":null`) || !strings.HasPrefix(lines[1], `{"process_cpu_ns":`) {
		t.Errorf("%q", lines)
	}
	if lines[2] != `{"error":"there is no order \"any\""}` {
		t.Errorf("%q", lines[2])
	}
	if err := serve(strings.NewReader("what"), &answers, false); err == nil {
		t.Error("that is no request")
	}
}
