package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// start returns the server's address, and a function that ends the server and waits for it.
func start(t *testing.T, kind string, workers int) (string, func()) {
	t.Helper()
	kept, err := newStore(kind)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		serve(listener, kept, workers, false, func() { <-end })
		close(ended)
	}()
	return listener.Addr().String(), func() {
		close(end)
		<-ended
	}
}

func ask(t *testing.T, addr, request string) string {
	t.Helper()
	connection, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(connection)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func putRequest(body string) string {
	return fmt.Sprintf("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestAnswers(t *testing.T) {
	for _, kind := range []string{"rwmutex", "syncmap"} {
		addr, end := start(t, kind, 2)
		const body = `{"id":-5,"description":"a","value":60.0}`
		for _, step := range [][2]string{
			{"GET /-5 HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "},
			{putRequest(body), "HTTP/1.1 201 Created\r\nLocation: /-5\r\n"},
			{putRequest(body), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
			{"GET /-5 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"},
			{putRequest("{"), "HTTP/1.1 400 "},
			{"PUT / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
			{"GET /x HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
			{"POST / HTTP/1.1\r\n\r\n", "HTTP/1.1 501 "},
		} {
			if answer := ask(t, addr, step[0]); !strings.HasPrefix(answer, step[1]) {
				t.Errorf("%s: %q is answered %q", kind, step[0], answer)
			}
		}
		if answer := ask(t, addr, "GET /-5 HTTP/1.1\r\n\r\n"); !strings.HasSuffix(answer, "\r\n\r\n"+body) {
			t.Errorf("%s: %q", kind, answer)
		}
		end()
	}
}

// Racing PUTs of each id: one of the values remains, whole, and a GET that races with them sees a whole one.
func TestRacingPuts(t *testing.T) {
	for _, kind := range []string{"rwmutex", "syncmap"} {
		addr, end := start(t, kind, 4)
		var clients sync.WaitGroup
		for client := range 8 {
			clients.Go(func() {
				for id := range 20 {
					ask(t, addr, putRequest(fmt.Sprintf(`{"id":%d,"description":"%d","value":%d.5}`, id, client, client)))
					ask(t, addr, fmt.Sprintf("GET /%d HTTP/1.1\r\n\r\n", id))
				}
			})
		}
		clients.Wait()
		for id := range 20 {
			answer := ask(t, addr, fmt.Sprintf("GET /%d HTTP/1.1\r\n\r\n", id))
			whole := false
			for client := range 8 {
				whole = whole || strings.HasSuffix(answer, fmt.Sprintf(`{"id":%d,"description":"%d","value":%d.5}`, id, client, client))
			}
			if !whole {
				t.Errorf("%s: %d is %q", kind, id, answer)
			}
		}
		end()
	}
}
