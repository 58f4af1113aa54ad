// Package wire is a handwritten HTTP/1 codec on the buffers of a connection, as in the published twin. It is for a
// server that answers requests one after another.
//
// Invariant: if the end of a request is ambiguous, the request is refused, and the connection must be closed. Head and
// body have a max length. Cost: one allocation for the head, and none for a body that fits into the buffer of the last
// one.
package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Request is a request. It is valid until the next request is read.
type Request struct {
	Method      string
	Target      string // path and query, or *
	Old         bool   // whether the version is HTTP/1.0
	KeepAlive   bool   // whether the client keeps the connection open
	ContentType string // empty if there is none
	Body        []byte
}

// Refused is the error for a request that the server refuses. After its answer the connection must be closed.
type Refused struct {
	Status int
	Why    string
}

func (r *Refused) Error() string { return r.Why }

func refuse(status int, why string) error { return &Refused{status, why} }

// Limits has the max lengths of a head and of a body in bytes, and the max number of fields.
type Limits struct {
	Head, Body, Fields int
}

// Reader reads the requests of a connection.
type Reader struct {
	buffer *bufio.Reader
	limits Limits
	// proceed is called if the client waits for a 100 before it sends a body.
	proceed func() error
	head    []byte
	body    []byte
	request Request
}

// NewReader returns a reader of buffer. The size of buffer is the max length of a line in a head.
func NewReader(buffer *bufio.Reader, limits Limits, proceed func() error) *Reader {
	return &Reader{buffer: buffer, limits: limits, proceed: proceed}
}

// Next reads a request. It returns io.EOF if the client has closed the connection between requests, and a *Refused if
// the server refuses the request.
func (r *Reader) Next() (*Request, error) {
	if err := r.readHead(); err != nil {
		return nil, err
	}
	var framing framing
	if err := parse(string(r.head), r.limits.Fields, &r.request, &framing); err != nil {
		return nil, err
	}
	if err := r.readBody(&framing); err != nil {
		return nil, err
	}
	return &r.request, nil
}

// readHead reads lines until an empty one. It skips up to 4 empty lines before the first.
func (r *Reader) readHead() error {
	r.head = r.head[:0]
	for skipped := 0; ; {
		line, err := r.buffer.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull), len(r.head)+len(line) > r.limits.Head:
			if len(r.head) == 0 {
				return refuse(414, "the request line is too long")
			}
			return refuse(431, "the head is too long")
		case err == io.EOF && len(r.head) == 0 && len(line) == 0:
			return io.EOF
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case len(line) < 2 || line[len(line)-2] != '\r':
			return refuse(400, "a line of the head does not end with CR LF")
		case len(line) > 2:
			r.head = append(r.head, line...)
		case len(r.head) > 0:
			return nil
		case skipped == 4:
			return refuse(400, "there are empty lines in place of a request")
		default:
			skipped++
		}
	}
}

func (r *Reader) readBody(framing *framing) error {
	if framing.length > int64(r.limits.Body) {
		return refuse(413, "the body is too long")
	}
	if framing.expects && !r.request.Old && (framing.chunked || framing.length > 0) && r.buffer.Buffered() == 0 {
		if err := r.proceed(); err != nil {
			return err
		}
	}
	r.body = r.body[:0]
	if framing.chunked {
		err := r.readChunks()
		r.request.Body = r.body
		return err
	}
	err := r.readExactly(int(framing.length))
	r.request.Body = r.body
	return err
}

// readExactly appends count bytes to the body.
func (r *Reader) readExactly(count int) error {
	start := len(r.body)
	// The buffer grows only as the bytes arrive, whatever length the client has announced.
	for len(r.body)-start < count {
		step := min(count-(len(r.body)-start), 64<<10)
		at := len(r.body)
		r.body = append(r.body, make([]byte, step)...)
		if _, err := io.ReadFull(r.buffer, r.body[at:]); err != nil {
			return ended(err)
		}
	}
	return nil
}

func (r *Reader) readChunks() error {
	for {
		line, err := r.chunkLine()
		if err != nil {
			return err
		}
		digits, extension, _ := bytes.Cut(line, []byte(";"))
		digits = bytes.TrimRight(digits, " \t")
		size, err := strconv.ParseUint(string(digits), 16, 31)
		if err != nil || !clean(string(extension)) {
			return refuse(400, "a chunk's size is none")
		}
		if size == 0 {
			return r.skipTrailers()
		}
		if len(r.body)+int(size) > r.limits.Body {
			return refuse(413, "the body is too long")
		}
		if err := r.readExactly(int(size)); err != nil {
			return err
		}
		if line, err := r.chunkLine(); err != nil {
			return err
		} else if len(line) > 0 {
			return refuse(400, "a chunk is longer than its size")
		}
	}
}

func (r *Reader) skipTrailers() error {
	for left := r.limits.Head; ; {
		line, err := r.chunkLine()
		if err != nil || len(line) == 0 {
			return err
		}
		name, value, ok := strings.Cut(string(line), ":")
		if !ok || !isToken(name) || !clean(value) {
			return refuse(400, "a trailer is no field")
		}
		if left -= len(line); left < 0 {
			return refuse(431, "the trailers are too long")
		}
	}
}

// chunkLine reads a line of a chunked body, and returns it without its CR LF.
func (r *Reader) chunkLine() ([]byte, error) {
	line, err := r.buffer.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, refuse(400, "a line between chunks is too long")
	}
	if err != nil {
		return nil, ended(err)
	}
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return nil, refuse(400, "a line between chunks does not end with CR LF")
	}
	return line, nil
}

func ended(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
