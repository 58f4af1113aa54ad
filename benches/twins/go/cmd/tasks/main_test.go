package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTermsByHand(t *testing.T) {
	for i, want := range []float64{-0.125, 0.875, -0.5} {
		if got, converged := iterate(triplet{0.125, 0.25, 0.5}, uint64(i+1)); got != want || converged >= 0 {
			t.Errorf("step %d: %v, %d", i+1, got, converged)
		}
	}
	if got := nextTriplet(triplet{0.75, 0.5, 0.25}); got != (triplet{0.5, 0.25, 1}) {
		t.Errorf("a term of exactly 1 is no reciprocal: %v", got)
	}
	if _, converged := iterate(triplet{0.5, 0.5, 0.5}, 10); converged != 0 {
		t.Errorf("it stands still from the first step on: %d", converged)
	}
}

func TestAnswersToRequests(t *testing.T) {
	requests := `{"starts":[[0.1,0.2,0.3],[0.4,0.5,0.6],[0.7,0.8,0.9]],"steps":1000,"order":"as_published","batch":2}` + "\n" +
		`{"starts":[],"steps":1,"order":"as_described","batch":0}`
	var answers bytes.Buffer
	if err := serve(strings.NewReader(requests), &answers); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(answers.String()), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[2], `{"task":3,`) || !strings.HasPrefix(lines[3], `{"process_cpu_ns":`) ||
		!strings.HasPrefix(lines[4], `{"error":`) {
		t.Errorf("%q", lines)
	}
}
