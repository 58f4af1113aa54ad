// Command entity is article A, the entity server in Go: an accept loop, an unbuffered channel of connections, and N
// goroutines. Each goroutine selects on the channel, prints a line, reads the request by lines, answers with
// Connection: close and closes. A WaitGroup waits for the goroutines at the end.
//
// The store is a map behind an RWMutex with an RWMutex for each entry, or a sync.Map. A PUT looks for the id under the
// read lock, and then takes the lock that it needs. Two first PUTs of an id can both find it missing. Both then insert,
// and the later one remains: the race is published.
//
// Deviations from the listing, besides those of package control:
//   - The value is a float64 and has the field names of the contract. The listing has a float32, which loses digits that
//     the clients verify, and the field names of the Go struct.
//   - A PUT of a new id is answered with 201 and Location, and each answer has a Content-Length. The listing answers 200
//     to every PUT, without a length. The clients check all three.
//   - JSON has the shortest digits and a ".0" after an integer, like the server in Rust; encoding/json has no ".0".
//   - An entry is a pointer, whose entity is replaced under its lock. The listing writes the map under its read lock,
//     which the Go runtime ends as a concurrent map write.
//   - The body is read to its length. The listing reads once, and refuses a body in two pieces.
//   - A PUT without a body is answered with 400. The listing ends with a nil pointer.
//   - Lines are printed with -print FILE only. An accept error is skipped without a line.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"polyserve/twins/internal/control"
)

type terminationFlag struct {
	sync.Mutex
	set bool
}

func main() {
	kind := flag.String("store", "rwmutex", "where the entities are: rwmutex or syncmap")
	flags := control.Parse()
	store, err := newStore(*kind)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	workers := flags.Workers
	if workers == 0 {
		workers = runtime.NumCPU()
	}
	listener, err := flags.Listen()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	serve(listener, store, workers, flags.Print != "", flags.AwaitEnd)
	flags.PrintCounts()
}

// serve runs the server until awaitEnd returns. It then runs what the channel has, and waits for the goroutines.
func serve(listener net.Listener, store store, workers int, prints bool, awaitEnd func()) {
	defer listener.Close()
	connections := make(chan net.Conn)
	var running sync.WaitGroup
	for i := range workers {
		running.Add(1)
		go func(number int) {
			defer running.Done()
			for {
				select {
				case connection, ok := <-connections:
					if !ok {
						return
					}
					if prints {
						fmt.Printf("goroutine %d handles a request\n", number)
					}
					handle(connection, store)
				}
			}
		}(i)
	}
	terminated := &terminationFlag{}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				continue
			}
			terminated.Lock()
			if terminated.set {
				close(connections)
				terminated.Unlock()
				connection.Close()
				return
			}
			terminated.Unlock()
			connections <- connection
		}
	}()
	awaitEnd()
	terminated.Lock()
	terminated.set = true
	terminated.Unlock()
	// A connection of its own wakes the accept loop.
	if wake, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		defer wake.Close()
	}
	running.Wait()
}

type request struct {
	method, path string
	body         *Entity
}

func handle(connection net.Conn, store store) {
	defer connection.Close()
	asked, err := read(connection)
	if err == io.EOF {
		return // closed without a request
	}
	var reply string
	switch {
	case err != nil:
		reply = answer("400 Bad Request", "", err.Error())
	case asked.method == "GET":
		reply = get(asked, store)
	case asked.method == "PUT":
		reply = put(asked, store)
	default:
		reply = answer("501 Not Implemented", "", "")
	}
	if _, err := connection.Write([]byte(reply)); err == nil {
		control.Answered.Add(1)
	}
}

// read reads the head line by line, and then the body. It returns io.EOF if the client closes before it sends a byte.
func read(connection net.Conn) (*request, error) {
	reader := bufio.NewReader(connection)
	var head []string
	for {
		line, err := reader.ReadString('\n')
		if err == io.EOF && (len(head) > 0 || line != "") {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if line == "\r\n" {
			break
		}
		head = append(head, strings.TrimSpace(line))
	}
	if len(head) == 0 {
		return nil, fmt.Errorf("no request line")
	}
	parts := strings.Split(head[0], " ")
	if len(parts) < 2 {
		return nil, fmt.Errorf("the request line has no path")
	}
	asked := &request{method: parts[0], path: parts[1]}
	length := 0
	for _, field := range head[1:] {
		if strings.Contains(strings.ToLower(field), "content-length") {
			_, value, _ := strings.Cut(field, ":")
			parsed, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
			if err != nil {
				return nil, err
			}
			length = int(parsed)
		}
	}
	if length > 0 {
		body := make([]byte, length)
		if _, err := io.ReadFull(reader, body); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		asked.body = &Entity{}
		if err := json.Unmarshal(body, asked.body); err != nil {
			return nil, err
		}
	}
	return asked, nil
}

func get(asked *request, store store) string {
	id, err := strconv.ParseInt(strings.TrimPrefix(asked.path, "/"), 10, 64)
	if err != nil {
		return answer("400 Bad Request", "", "")
	}
	body, found, err := store.get(id)
	if err != nil {
		return answer("500 Internal Server Error", "", "")
	}
	if !found {
		return answer("404 Not Found", "", "")
	}
	return answer("200 OK", "Content-Type: application/json\r\n", string(body))
}

func put(asked *request, store store) string {
	if asked.body == nil || asked.path != "/" {
		return answer("400 Bad Request", "", "")
	}
	if store.put(asked.body) {
		return answer("201 Created", fmt.Sprintf("Location: /%d\r\n", asked.body.ID), "")
	}
	return answer("200 OK", "", "")
}

func answer(status, fields, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, fields, len(body), body)
}
