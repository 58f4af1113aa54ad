package twin

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"polyserve/peers/internal/service"
	"polyserve/peers/internal/wire"
)

// state is what a goroutine does with its connection.
type state int

const (
	none  state = iota // it has none
	fresh              // it waits for the first byte of all
	kept               // it waits for the first byte of another request
	busy               // a request has begun
)

// worker is a goroutine and the connection that it serves.
type worker struct {
	server   *Server
	in       *bufio.Reader
	out      []byte
	space    []byte
	answered uint64 // read when the goroutine has ended
	cut      uint64

	lock       sync.Mutex // guards what follows, which others look at
	connection net.Conn
	state      state
	told       bool // to let go of an idle connection
	aborted    bool
}

func newWorker(server *Server) *worker {
	return &worker{server: server, in: bufio.NewReaderSize(nil, service.MaxHead)}
}

// run serves connections until there are no more.
func (w *worker) run() {
	for connection := range w.server.connections {
		w.in.Reset(connection)
		w.serve(connection)
		w.enter(none, nil)
		connection.Close()
	}
}

// enter notes what is done now; false where the grace is over, and nothing is to be done any more.
func (w *worker) enter(state state, connection net.Conn) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.state, w.connection, w.told = state, connection, false
	return !w.aborted
}

// interrupt ends the wait where the goroutine is in one of these states; false where it is not.
func (w *worker) interrupt(states ...state) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, state := range states {
		if w.state == state && !w.told {
			w.told = true
			w.connection.SetReadDeadline(time.Now()) // it takes the lock before it sets another
			return true
		}
	}
	return false
}

// abort closes the connection, whatever is done with it.
func (w *worker) abort() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.aborted = true
	if w.state == busy {
		w.cut++ // the goroutine reads it no more, and Drain when it has ended
	}
	if w.connection != nil {
		w.connection.Close()
	}
}

// serve answers the requests of a connection.
func (w *worker) serve(connection net.Conn) {
	requests := wire.NewReader(w.in, wire.Limits{Head: service.MaxHead, Body: service.MaxBody, Fields: 100}, func() error {
		w.out = append(w.out, "HTTP/1.1 100 Continue\r\n\r\n"...)
		connection.SetReadDeadline(time.Now().Add(bodyTimeout))
		return w.flush(connection, 0)
	})
	pending := uint64(0) // answers that are not sent yet
	for first := true; ; first = false {
		if w.in.Buffered() == 0 {
			if w.flush(connection, pending) != nil {
				return
			}
			pending = 0
			if !w.await(connection, first) {
				return
			}
		}
		request, err := requests.Next()
		if err != nil {
			w.refuse(connection, err, pending)
			return
		}
		// What has come already is answered before a connection is let go of.
		letGo := w.in.Buffered() == 0 && (w.server.waiting.Load() > 0 || w.server.draining.Load())
		keep := request.KeepAlive && !letGo
		reply := w.server.service.Answer(w.space, request.Method, request.Target, request.ContentType, request.Body)
		w.space = reply.Body[:0]
		sent := wire.Sent{Old: request.Old, KeepAlive: keep, Head: request.Method == "HEAD"}
		w.out = wire.AppendReply(w.out, &reply, sent, time.Now())
		pending++
		if !keep || len(w.out) > 64<<10 {
			if w.flush(connection, pending) != nil || !keep {
				return
			}
			pending = 0
		}
	}
}

// await waits for the first byte of a request, and sets the deadline of the rest; false where there is to be none.
func (w *worker) await(connection net.Conn, first bool) bool {
	waits, timeout := kept, idleTimeout
	if first {
		waits, timeout = fresh, headTimeout
	}
	for end := time.Now().Add(timeout); ; {
		connection.SetReadDeadline(end)
		if !w.enter(waits, connection) {
			return false
		}
		// Whoever came before this goroutine was seen to wait did not interrupt it.
		if w.isToLetGo(first) {
			w.interrupt(waits)
		}
		_, err := w.in.Peek(1)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) {
			err = w.lastLook(connection)
			if errors.Is(err, os.ErrDeadlineExceeded) && !w.isToLetGo(first) {
				continue // another has let go meanwhile
			}
		}
		if err != nil || !w.enter(busy, connection) {
			return false
		}
		connection.SetReadDeadline(time.Now().Add(headTimeout))
		return true
	}
}

// isToLetGo tells whether an idle connection is to be let go of. One that has not said a word yet is left its time.
func (w *worker) isToLetGo(first bool) bool {
	return w.server.draining.Load() || (!first && w.server.waiting.Load() > 0)
}

// lastLook waits a little longer where a connection is to be let go of: what a client that does not pause has under way
// is served, and the end is announced with its answer.
func (w *worker) lastLook(connection net.Conn) error {
	wait := 50 * time.Millisecond
	if w.server.draining.Load() {
		wait = 5 * time.Millisecond
	}
	connection.SetReadDeadline(time.Now().Add(wait))
	_, err := w.in.Peek(1)
	return err
}

// refuse answers a request that cannot be taken, and sees that the client can read the answer.
func (w *worker) refuse(connection net.Conn, err error, pending uint64) {
	refused := new(wire.Refused)
	switch {
	case errors.As(err, &refused):
	case errors.Is(err, os.ErrDeadlineExceeded):
		refused.Status, refused.Why = 408, "the request took too long"
	default:
		w.flush(connection, pending) // what came before it is answered
		return
	}
	reply := service.Failure(w.space, refused.Status, refused.Why)
	w.out = wire.AppendReply(w.out, &reply, wire.Sent{}, time.Now())
	if w.flush(connection, pending+1) == nil {
		linger(connection)
	}
}

// flush sends what is to be sent, so many answers.
func (w *worker) flush(connection net.Conn, answers uint64) error {
	if len(w.out) == 0 {
		return nil
	}
	connection.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := connection.Write(w.out)
	w.out = w.out[:0]
	if err == nil {
		w.answered += answers
	}
	return err
}

// linger reads on for a moment: to close a socket with unread bytes is to reset it, and the answer may be lost.
func linger(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		connection.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		io.CopyN(io.Discard, connection, 1<<20) // whatever it was, the connection is closed next
	}
}
