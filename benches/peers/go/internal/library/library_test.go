package library

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

func TestADrainIsWaitedForAndCounted(t *testing.T) {
	stopped := make(chan struct{})
	var http HTTP
	http.Init(
		func(net.Listener) error { <-stopped; return nil },
		func(limit context.Context) {
			close(stopped)
			<-limit.Done() // one request is not answered in time
		},
	)
	http.Begun.Add(3)
	http.Answered.Add(2)
	served := make(chan error, 1)
	go func() { served <- http.Serve(nil) }()
	if counts := http.Drain(time.Millisecond); counts.Answered != 2 || counts.Cut != 1 || counts.Stuck != 0 {
		t.Errorf("it counted %+v", counts)
	}
	if err := <-served; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestWhoCannotAcceptDoesNotWaitForADrain(t *testing.T) {
	var http HTTP
	http.Init(func(net.Listener) error { return errors.New("no listener") }, func(context.Context) {})
	if err := http.Serve(nil); err == nil {
		t.Error("it served without a listener")
	}
}
