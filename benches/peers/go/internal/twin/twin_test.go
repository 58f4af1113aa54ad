package twin

import (
	"io"
	"strings"
	"testing"

	"polyserve/peers/internal/kit"
	"polyserve/peers/internal/service"
	"polyserve/peers/internal/store"
)

func start(t *testing.T, kind string, goroutines int) *kit.Serving {
	t.Helper()
	kept, err := store.New(kind)
	if err != nil {
		t.Fatal(err)
	}
	return kit.Start(t, New(service.New(kept), goroutines))
}

func TestTheContractAndTheDrain(t *testing.T) {
	for _, kind := range []string{"rwmutex", "syncmap"} {
		serving := start(t, kind, 16) // enough goroutines, so no connection is closed before the drain
		kit.Drains(t, serving, kit.Contract(t, serving))
	}
}

func TestManyConnectionsOnFewGoroutines(t *testing.T) {
	for _, goroutines := range []int{1, 3, 64} {
		serving := start(t, "rwmutex", goroutines)
		answered := 1 + kit.Load(t, serving, false) + kit.Load(t, serving, true)
		if counts := serving.Drain(t, 1e10); counts.Answered != answered || counts.Cut != 0 {
			t.Errorf("%d goroutines ended with %+v where %d were answered", goroutines, counts, answered)
		}
	}
}

// With one goroutine and an idle kept-alive connection, the next client is served.
func TestAKeptConnectionHoldsNobodyUp(t *testing.T) {
	serving := start(t, "rwmutex", 1)
	idle := serving.Client(t)
	idle.Ask(t, kit.Get(1, ""), "GET")
	if response, _ := serving.Client(t).Ask(t, kit.Get(1, "Connection: close\r\n"), "GET"); response.StatusCode != 404 {
		t.Error(response)
	}
	if err := idle.Ended(); err != nil {
		t.Error(err)
	}
	serving.Drain(t, 1e10)
}

func TestARequestThatNeverEndsIsCut(t *testing.T) {
	kit.Cuts(t, start(t, "rwmutex", 2))
}

// The answer to a refused request reaches a client that keeps sending, and the connection ends.
func TestARefusalCanBeRead(t *testing.T) {
	serving := start(t, "rwmutex", 2)
	for request, status := range map[string]int{
		"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" + strings.Repeat("x", 100_000): 413,
		"GET /1 HTTP/1.1\r\n\r\n":                                   400,
		"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: y\r\n\r\n": 400,
		"BREW / HTTP/1.1\r\nHost: x\r\n\r\n":                        501,
	} {
		client := serving.Client(t)
		go io.WriteString(client, request)
		response, body := client.Receive(t, "GET")
		if response.StatusCode != status || !response.Close || !strings.Contains(body, "detail") {
			t.Errorf("%.60q is answered %v %q", request, response, body)
		}
		client.Close()
	}
	serving.Drain(t, 1e10)
}

func TestAContinueIsSaid(t *testing.T) {
	serving := start(t, "rwmutex", 1)
	client := serving.Client(t)
	request := kit.Put(kit.Entity(5, "1.5"), "Expect: 100-continue\r\n")
	head, body, _ := strings.Cut(request, "\r\n\r\n")
	if response, _ := client.Ask(t, head+"\r\n\r\n", "PUT"); response.StatusCode != 100 {
		t.Error(response)
	}
	if response, _ := client.Ask(t, body, "PUT"); response.StatusCode != 201 {
		t.Error(response)
	}
	serving.Drain(t, 1e10)
}
