package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"polyserve/peers/internal/service"
)

var limits = Limits{Head: 512, Body: 64, Fields: 8}

func readerOf(from io.Reader) (*Reader, *int) {
	asked := new(int)
	buffer := bufio.NewReaderSize(from, 256)
	return NewReader(buffer, limits, func() error { *asked++; return nil }), asked
}

func outcome(request *Request, err error) string {
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return fmt.Sprint(refused.Status)
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("%s %s %q keep=%v old=%v", request.Method, request.Target, request.Body, request.KeepAlive, request.Old)
}

const host = "Host: x\r\n"

var heads = []struct{ sent, want string }{
	{"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n", `GET /1 "" keep=true old=false`},
	{"\r\nGET /1 HTTP/1.1\r\nhOST:x\r\n\r\n", `GET /1 "" keep=true old=false`},
	{"GET /1 HTTP/1.1\r\n" + host + "Connection: x, CLOSE\r\n\r\n", `GET /1 "" keep=false old=false`},
	{"GET /1 HTTP/1.0\r\n\r\n", `GET /1 "" keep=false old=true`},
	{"GET /1 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", `GET /1 "" keep=true old=true`},
	{"GET http://x/1?y HTTP/1.1\r\n" + host + "\r\n", `GET /1?y "" keep=true old=false`},
	{"GET http://x?y HTTP/1.1\r\n" + host + "\r\n", `GET /?y "" keep=true old=false`},
	{"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", `OPTIONS * "" keep=true old=false`},
	{"PUT / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", `PUT / "abc" keep=true old=false`},
	{"PUT / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
		`PUT / "abc0123456789" keep=true old=false`},

	{"GET /1 HTTP/1.1\r\n\r\n", "400"},
	{"GET /1 HTTP/1.1\r\n" + host + host + "\r\n", "400"},
	{"GET /1 HTTP/1.1\r\nHost: a b\r\n\r\n", "400"},
	{"GET /1 HTTP/1.1\nHost: x\n\n", "400"},
	{"GET /1 HTTP/1.1\r\nHost : x\r\n\r\n", "400"},
	{"GET /1 HTTP/1.1\r\n" + host + " folded\r\n\r\n", "400"},
	{"GET /1 HTTP/1.1\r\n" + host + "A: \x00\r\n\r\n", "400"},
	{"GET /1 HTTP/1.1\r\n" + host + "A: b\rc\r\n\r\n", "400"},
	{"GET  /1 HTTP/1.1\r\n" + host + "\r\n", "400"},
	{"GET /1 /2 HTTP/1.1\r\n" + host + "\r\n", "400"},
	{"hello\r\n\r\n", "400"},
	{"PRI * HTTP/2.0\r\n\r\n", "400"},
	{"GET x HTTP/1.1\r\n" + host + "\r\n", "400"},
	{"GET /1 HTTP/1.2\r\n" + host + "\r\n", "505"},
	{"TRACE /1 HTTP/1.1\r\n" + host + "\r\n", "501"},
	{"PUT / HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc", "400"},
	{"PUT / HTTP/1.1\r\n" + host + "Content-Length: \r\n\r\n", "400"},
	{"PUT / HTTP/1.1\r\n" + host + "Content-Length: 3, 4\r\n\r\nabc", "400"},
	{"PUT / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", "400"},
	{"PUT / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, gzip\r\n\r\n", "400"},
	{"PUT / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", "501"},
	{"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
	{"PUT / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", "400"},
	{"PUT / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", "400"},
	{"PUT / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n41\r\n", "413"},
	{"PUT / HTTP/1.1\r\n" + host + "Content-Length: 65\r\n\r\n", "413"},
	{"PUT / HTTP/1.1\r\n" + host + "Expect: tea\r\n\r\n", "417"},
	{"GET /" + strings.Repeat("1", 300) + " HTTP/1.1\r\n\r\n", "414"},
	{"GET / HTTP/1.1\r\n" + strings.Repeat("A: bbbbbbbbbbbbbbbbbbbbbbbbb\r\n", 20), "431"},
	{"GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 9) + "\r\n", "431"},
	{strings.Repeat("\r\n", 8), "400"},

	{"", "EOF"},
	{"GET", "unexpected EOF"},
	{"GET / HTTP/1.1\r\n", "unexpected EOF"},
	{"PUT / HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nab", "unexpected EOF"},
	{"PUT / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nab", "unexpected EOF"},
}

func TestHeads(t *testing.T) {
	for _, head := range heads {
		for name, from := range map[string]io.Reader{
			"at once":      strings.NewReader(head.sent),
			"byte by byte": iotest.OneByteReader(strings.NewReader(head.sent)),
		} {
			reader, _ := readerOf(from)
			if got := outcome(reader.Next()); got != head.want {
				t.Errorf("%.80q %s is %s, not %s", head.sent, name, got, head.want)
			}
		}
	}
}

func TestOneRequestDoesNotLeakIntoTheNext(t *testing.T) {
	first := "PUT / HTTP/1.0\r\nContent-Type: a/b\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab"
	reader, _ := readerOf(strings.NewReader(first + "GET /2 HTTP/1.1\r\n" + host + "\r\n"))
	if request, err := reader.Next(); err != nil || request.ContentType != "a/b" {
		t.Error(request, err)
	}
	request, err := reader.Next()
	if got := outcome(request, err); got != `GET /2 "" keep=true old=false` || request.ContentType != "" {
		t.Error(got)
	}
	if got := outcome(reader.Next()); got != "EOF" {
		t.Error(got)
	}
}

func TestAContinueIsSaidOnceAndBeforeTheBody(t *testing.T) {
	head := "PUT / HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
	client, server := io.Pipe()
	said := make(chan struct{})
	reader := NewReader(bufio.NewReader(client), limits, func() error { close(said); return nil })
	go func() {
		io.WriteString(server, head)
		<-said
		io.WriteString(server, "ab")
	}()
	if got := outcome(reader.Next()); got != `PUT / "ab" keep=true old=false` {
		t.Error(got)
	}
	together, asked := readerOf(strings.NewReader(head + "ab"))
	if got := outcome(together.Next()); got != `PUT / "ab" keep=true old=false` || *asked != 0 {
		t.Error(got, *asked, "the body is there already")
	}
}

func TestHosts(t *testing.T) {
	for _, host := range []string{"", "a", "a:", "a:80", "127.0.0.1:8001", "[::1]", "[::1]:80", "a-b.c_d"} {
		if !isHost(host) {
			t.Errorf("%q is a host", host)
		}
	}
	for _, host := range []string{"a b", "a:b", "user@a", "a/b", "::1", "[::1", "[[::1]]", "a,b", "[::1]:x", "a:80:80"} {
		if isHost(host) {
			t.Errorf("%q is no host", host)
		}
	}
}

func TestReplies(t *testing.T) {
	now := time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)
	const dated = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
	shown := service.Reply{Status: 200, ContentType: service.JSON, Body: []byte("{}")}
	created := service.Reply{Status: 201, Location: "/1"}
	removed := service.Reply{Status: 204}
	for _, reply := range []struct {
		reply *service.Reply
		sent  Sent
		want  string
	}{
		{&shown, Sent{KeepAlive: true}, "HTTP/1.1 200 OK\r\n" + dated + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"},
		{&shown, Sent{KeepAlive: true, Old: true, Head: true}, "HTTP/1.1 200 OK\r\n" + dated +
			"Content-Type: application/json\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n"},
		{&created, Sent{}, "HTTP/1.1 201 Created\r\n" + dated + "Location: /1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{&removed, Sent{KeepAlive: true}, "HTTP/1.1 204 No Content\r\n" + dated + "\r\n"},
	} {
		if got := string(AppendReply(nil, reply.reply, reply.sent, now)); got != reply.want {
			t.Errorf("got %q, want %q", got, reply.want)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, head := range heads {
		f.Add([]byte(head.sent))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		reader, _ := readerOf(strings.NewReader(string(sent)))
		for range 100 {
			request, err := reader.Next()
			if err != nil {
				return
			}
			if len(request.Body) > limits.Body || request.Target == "" || request.Method == "" {
				t.Errorf("%q is taken for %+v", sent, request)
			}
		}
	})
}
