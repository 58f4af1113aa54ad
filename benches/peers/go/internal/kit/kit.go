// Package kit has the tests of every server in this module: the contract, as a client with a socket sees it, and the
// drain.
package kit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"polyserve/peers/internal/run"
)

// maxWait is a timeout that only matters if a server hangs.
const maxWait = 20 * time.Second

// Serving is a listening server.
type Serving struct {
	Addr   string
	server run.Server
	served chan error
}

// Start starts a server on a free port.
func Start(t *testing.T, server run.Server) *Serving {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving := &Serving{listener.Addr().String(), server, make(chan error, 1)}
	go func() { serving.served <- server.Serve(listener) }()
	// An answer shows that the server accepts connections, so it can be drained.
	serving.Client(t).Ask(t, "GET /-1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "GET")
	return serving
}

// Drain drains the server, and checks that the port is closed.
func (s *Serving) Drain(t *testing.T, grace time.Duration) run.Counts {
	t.Helper()
	counts := s.server.Drain(grace)
	if err := <-s.served; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if connection, err := net.Dial("tcp", s.Addr); err == nil {
		connection.Close()
		t.Errorf("something listens on %s after the drain", s.Addr)
	}
	return counts
}

// Whole runs all tests: the contract, a load on kept-alive connections and on new ones, and the drain after it.
func Whole(t *testing.T, server run.Server) {
	t.Helper()
	serving := Start(t, server)
	asked := Contract(t, serving) + Load(t, serving, false) + Load(t, serving, true)
	Drains(t, serving, asked)
}

// Client is a connection to a server.
type Client struct {
	net.Conn
	in *bufio.Reader
}

// Client opens a connection to the server.
func (s *Serving) Client(t *testing.T) *Client {
	t.Helper()
	connection, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	connection.SetDeadline(time.Now().Add(maxWait))
	t.Cleanup(func() { connection.Close() })
	return &Client{connection, bufio.NewReader(connection)}
}

// Ask sends a request. It returns the response and its body, which has been read.
func (c *Client) Ask(t *testing.T, request, method string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatalf("%.60q: %v", request, err)
	}
	return c.Receive(t, method)
}

// Receive reads a response. It returns the response and its body.
func (c *Client) Receive(t *testing.T, method string) (*http.Response, string) {
	t.Helper()
	response, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("no body: %v", err)
	}
	return response, string(body)
}

// Ended returns an error unless the server closes the connection without sending anything more.
func (c *Client) Ended() error {
	if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
		return fmt.Errorf("%d bytes more, and %v", len(rest), err)
	}
	return nil
}

// Get and Put return the text of a request.
func Get(id int, fields string) string {
	return fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\n%s\r\n", id, fields)
}

func Put(entity, fields string) string {
	return fmt.Sprintf("PUT / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		fields, len(entity), entity)
}

// Entity returns the JSON of an entity.
func Entity(id int, value string) string {
	return fmt.Sprintf(`{"id":%d,"description":"d\"<","value":%s}`, id, value)
}

// Contract tests what all servers guarantee. It returns the number of its requests.
func Contract(t *testing.T, s *Serving) uint64 {
	t.Helper()
	client, asked := s.Client(t), uint64(0)
	entity := Entity(1, "60.750847")
	for _, step := range []struct {
		request, method string
		status          int
		body            string
	}{
		{Get(1, ""), "GET", 404, ""},
		{Put(entity, ""), "PUT", 201, ""},
		{Put(Entity(1, "7.0"), ""), "PUT", 200, ""},
		{Get(1, ""), "GET", 200, Entity(1, "7.0")},
		{Put(entity, "Connection: keep-alive\r\n"), "PUT", 200, ""},
		{Get(1, "Connection: keep-alive\r\n"), "GET", 200, entity},
		{"HEAD /1 HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD", 200, ""},
		{"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "GET", 400, ""},
		{Put("{", ""), "PUT", 400, ""},
		{Put("[]", ""), "PUT", 422, ""},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "POST", 405, ""},
		{"DELETE /1 HTTP/1.1\r\nHost: x\r\n\r\n", "DELETE", 204, ""},
		{Get(1, ""), "GET", 404, ""},
		{Put(entity, ""), "PUT", 201, ""},
	} {
		response, body := client.Ask(t, step.request, step.method)
		asked++
		switch {
		case response.StatusCode != step.status:
			t.Errorf("%.60q is answered %d: %s", step.request, response.StatusCode, body)
		case step.body != "" && (body != step.body || response.Header.Get("Content-Type") != "application/json"):
			t.Errorf("%.60q shows %q as %q", step.request, body, response.Header.Get("Content-Type"))
		case step.status == 201 && (response.Header.Get("Location") != "/1" || response.ContentLength != 0):
			t.Errorf("%.60q created %q, %d", step.request, response.Header.Get("Location"), response.ContentLength)
		case step.method == "HEAD" && response.ContentLength != int64(len(entity)):
			t.Errorf("a HEAD says Content-Length %d", response.ContentLength)
		case len(response.Header.Get("Date")) != 29 || response.Close:
			t.Errorf("%.60q has the head %v", step.request, response.Header)
		}
	}
	return asked + endings(t, s) + pipelined(t, s)
}

// endings tests how connections end, and how they are kept alive, in both versions of HTTP/1. Entity 1 must be stored.
func endings(t *testing.T, s *Serving) uint64 {
	t.Helper()
	for _, last := range []string{Get(1, "Connection: close\r\n"), "GET /1 HTTP/1.0\r\n\r\n"} {
		client := s.Client(t)
		if response, _ := client.Ask(t, last, "GET"); response.StatusCode != 200 || !response.Close {
			t.Errorf("%q: %v", last, response)
		}
		if err := client.Ended(); err != nil {
			t.Errorf("%q: %v", last, err)
		}
	}
	kept := s.Client(t)
	for range 2 {
		response, _ := kept.Ask(t, "GET /1 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET")
		if !strings.EqualFold(response.Header.Get("Connection"), "keep-alive") || response.ContentLength < 1 {
			t.Errorf("HTTP/1.0 is kept by %v", response.Header)
		}
	}
	return 4
}

func pipelined(t *testing.T, s *Serving) uint64 {
	t.Helper()
	client := s.Client(t)
	go io.WriteString(client, strings.Repeat(Get(1, "")+Get(99, ""), 8))
	for n := range 16 {
		if response, _ := client.Receive(t, "GET"); response.StatusCode != []int{200, 404}[n%2] {
			t.Errorf("answer %d of 16 is %d", n, response.StatusCode)
		}
	}
	return 16
}

// Load sends requests over many connections at once. Each request has a new connection, or the connections are kept
// alive. Every request must have an answer. Load returns the number of requests.
func Load(t *testing.T, s *Serving, kept bool) uint64 {
	t.Helper()
	const clients, requests = 24, 40
	fields := "Connection: close\r\n"
	if kept {
		fields = ""
	}
	var wait sync.WaitGroup
	for id := range clients {
		wait.Go(func() {
			var client *Client
			for n := range requests {
				text := Entity(1000+id, fmt.Sprintf("%d.5", n/2))
				request, method, want := Put(text, fields), "PUT", ""
				if n%2 == 1 {
					request, method, want = Get(1000+id, fields), "GET", text
				}
				used := client != nil
				if !used {
					client = s.Client(t)
				}
				response, body, err := client.try(request, method)
				if err != nil && used { // a server may close an idle connection
					client = s.Client(t)
					response, body, err = client.try(request, method)
				}
				if err != nil || body != want || response.StatusCode > 201 {
					t.Errorf("%.60q: %v %q %v", request, response, body, err)
					return
				}
				if response.Close {
					client.Close()
					client = nil
				}
			}
		})
	}
	wait.Wait()
	return clients * requests
}

// try is Ask for goroutines of a test, which must not call Fatal. It returns the error.
func (c *Client) try(request, method string) (*http.Response, string, error) {
	if _, err := io.WriteString(c, request); err != nil {
		return nil, "", err
	}
	response, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// Drains tests a drain. Idle connections must be closed, and all answers counted. Entity 1 must be stored. asked is the
// number of requests so far, without the request of Start.
func Drains(t *testing.T, s *Serving, asked uint64) {
	t.Helper()
	idle := s.Client(t)
	idle.Ask(t, Get(1, ""), "GET")
	want := run.Counts{Answered: asked + 2}
	counts := make(chan run.Counts, 1)
	go func() { counts <- s.Drain(t, maxWait) }()
	if err := idle.Ended(); err != nil {
		t.Errorf("the idle one: %v", err)
	}
	if got := <-counts; got != want {
		t.Errorf("it ended with %+v, not %+v", got, want)
	}
}
