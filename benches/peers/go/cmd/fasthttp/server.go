package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"polyserve/peers/internal/library"
	"polyserve/peers/internal/service"
)

// server is the service on fasthttp.
type server struct {
	library.HTTP
	service *service.Service
}

func newServer(service_ *service.Service) *server {
	s := &server{service: service_}
	http := &fasthttp.Server{
		Handler:               s.answer,
		Logger:                log.New(io.Discard, "", 0), // the other peers do not log invalid requests
		NoDefaultServerHeader: true,
		NoDefaultContentType:  true,
		CloseOnShutdown:       true,
		ReadBufferSize:        service.MaxHead,
		MaxRequestBodySize:    service.MaxBody,
		ReadTimeout:           30 * time.Second,
		WriteTimeout:          30 * time.Second,
		IdleTimeout:           60 * time.Second,
	}
	// Connections that are open at the end of the grace end with the process.
	s.Init(http.Serve, func(limit context.Context) { http.ShutdownWithContext(limit) })
	return s
}

// spaces has the buffers for answers. fasthttp copies an answer from its buffer.
var spaces = sync.Pool{New: func() any { return new([]byte) }}

func (s *server) answer(ctx *fasthttp.RequestCtx) {
	s.Begun.Add(1)
	defer s.Answered.Add(1)
	space := spaces.Get().(*[]byte)
	defer spaces.Put(space)
	header := &ctx.Request.Header
	reply := s.service.Answer(*space, method(header.Method()), target(ctx), contentType(header.ContentType()), ctx.PostBody())
	*space = reply.Body[:0]
	ctx.SetStatusCode(reply.Status)
	if reply.ContentType != "" {
		ctx.SetContentType(reply.ContentType)
	}
	if reply.Location != "" {
		ctx.Response.Header.Set("Location", reply.Location)
	}
	if reply.Allow != "" {
		ctx.Response.Header.Set("Allow", reply.Allow)
	}
	ctx.SetBody(reply.Body)
}

// method, target and contentType return strings. They do not allocate for the usual values.
func method(bytes []byte) string {
	switch string(bytes) {
	case "GET":
		return "GET"
	case "PUT":
		return "PUT"
	}
	return string(bytes)
}

func target(ctx *fasthttp.RequestCtx) string {
	if bytes.Equal(ctx.Request.Header.RequestURI(), []byte("*")) {
		return "*"
	}
	path := ctx.Path()
	if string(path) == "/" {
		return "/"
	}
	return string(path)
}

func contentType(bytes []byte) string {
	if string(bytes) == service.JSON {
		return service.JSON
	}
	return string(bytes)
}
