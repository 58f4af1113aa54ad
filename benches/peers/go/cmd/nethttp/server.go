package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"polyserve/peers/internal/library"
	"polyserve/peers/internal/service"
)

// server is the service on net/http.
type server struct {
	library.HTTP
	service *service.Service
}

func newServer(service_ *service.Service) *server {
	s := &server{service: service_}
	server := &http.Server{
		Handler:           http.HandlerFunc(s.answer),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    service.MaxHead,
	}
	accept := func(listener net.Listener) error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	s.Init(accept, func(limit context.Context) {
		if server.Shutdown(limit) != nil {
			server.Close()
		}
	})
	return s
}

// room has the buffers of a request: body for the request body, and space for the answer.
type room struct {
	body, space []byte
}

var rooms = sync.Pool{New: func() any { return new(room) }}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	s.Begun.Add(1)
	defer s.Answered.Add(1)
	room := rooms.Get().(*room)
	defer rooms.Put(room)
	reply := s.reply(room, w, r)
	header := w.Header()
	if reply.ContentType != "" {
		header.Set("Content-Type", reply.ContentType)
	}
	if reply.Location != "" {
		header.Set("Location", reply.Location)
	}
	if reply.Allow != "" {
		header.Set("Allow", reply.Allow)
	}
	if reply.Status != http.StatusNoContent {
		header.Set("Content-Length", strconv.Itoa(len(reply.Body)))
	}
	w.WriteHeader(reply.Status)
	if r.Method != http.MethodHead {
		w.Write(reply.Body) // fails if the client has disconnected
	}
}

func (s *server) reply(room *room, w http.ResponseWriter, r *http.Request) service.Reply {
	room.body = room.body[:0]
	if r.ContentLength != 0 {
		var err error
		if room.body, err = read(room.body, http.MaxBytesReader(w, r.Body, service.MaxBody)); err != nil {
			if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
				return service.Failure(room.space, 413, "the body is too long")
			}
			return service.Failure(room.space, 400, "the body cannot be read")
		}
	}
	target := r.URL.Path
	if r.RequestURI == "*" {
		target = "*"
	}
	reply := s.service.Answer(room.space, r.Method, target, r.Header.Get("Content-Type"), room.body)
	room.space = reply.Body[:0]
	return reply
}

// read reads from until EOF, and appends the bytes to the buffer to.
func read(to []byte, from io.Reader) ([]byte, error) {
	for {
		if len(to) == cap(to) {
			to = append(to, make([]byte, 512)...)[:len(to)]
		}
		count, err := from.Read(to[len(to):cap(to)])
		to = to[:len(to)+count]
		if err == io.EOF {
			return to, nil
		}
		if err != nil {
			return to, err
		}
	}
}
