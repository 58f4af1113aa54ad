package wire

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"polyserve/peers/internal/service"
)

// Sent describes how an answer is sent.
type Sent struct {
	Old       bool // to an HTTP/1.0 client
	KeepAlive bool // whether the connection is kept alive
	Head      bool // without the body
}

// AppendReply appends an answer to a buffer, and returns the buffer.
func AppendReply(to []byte, reply *service.Reply, sent Sent, now time.Time) []byte {
	to = append(to, "HTTP/1.1 "...)
	to = strconv.AppendInt(to, int64(reply.Status), 10)
	to = append(to, ' ')
	to = append(to, http.StatusText(reply.Status)...)
	to = append(to, "\r\nDate: "...)
	to = append(to, date(now)...)
	if reply.ContentType != "" {
		to = append(to, "\r\nContent-Type: "...)
		to = append(to, reply.ContentType...)
	}
	if reply.Location != "" {
		to = append(to, "\r\nLocation: "...)
		to = append(to, reply.Location...)
	}
	if reply.Allow != "" {
		to = append(to, "\r\nAllow: "...)
		to = append(to, reply.Allow...)
	}
	if reply.Server != "" {
		to = append(to, "\r\nServer: "...)
		to = append(to, reply.Server...)
	}
	if reply.Status != 204 {
		to = append(to, "\r\nContent-Length: "...)
		to = strconv.AppendInt(to, int64(len(reply.Body)), 10)
	}
	switch {
	case !sent.KeepAlive:
		to = append(to, "\r\nConnection: close"...)
	case sent.Old:
		to = append(to, "\r\nConnection: keep-alive"...)
	}
	to = append(to, "\r\n\r\n"...)
	if sent.Head {
		return to
	}
	return append(to, reply.Body...)
}

type second struct {
	unix int64
	text string
}

var lastSecond atomic.Pointer[second]

// date returns the Date of an answer. It is formatted once per second.
func date(now time.Time) string {
	last := lastSecond.Load()
	if last == nil || last.unix != now.Unix() {
		last = &second{now.Unix(), now.UTC().Format(http.TimeFormat)}
		lastSecond.Store(last)
	}
	return last.text
}
