package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestThePageIsReadForEachRequestAndCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	if _, err := newServer(file, 2, time.Millisecond); err == nil {
		t.Fatal("a missing file was accepted")
	}
	os.WriteFile(file, []byte("first"), 0o600)
	s, err := newServer(file, 2, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	for number, want := range []string{"first", "second"} {
		os.WriteFile(file, []byte(want), 0o600)
		begun := time.Now()
		response, err := http.Get("http://" + listener.Addr().String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != 200 || string(body) != want {
			t.Errorf("%d %q, not 200 %q", response.StatusCode, body, want)
		}
		if number == 1 && time.Since(begun) < 20*time.Millisecond {
			t.Error("the second request has not waited")
		}
	}
	if counts := s.Drain(time.Second); counts.Answered != 2 || counts.Cut != 0 {
		t.Errorf("%+v", counts)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
