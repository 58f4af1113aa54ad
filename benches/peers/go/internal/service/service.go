// Package service answers requests, in the same way on all servers: the entity service of polyserve's contract.
package service

import (
	"errors"
	"mime"
	"strconv"
	"strings"

	"polyserve/peers/internal/entity"
	"polyserve/peers/internal/store"
)

// MaxBody is the max length of a request body in bytes.
const MaxBody = 1 << 20

// MaxHead is the max length of a request head in bytes.
const MaxHead = 16 << 10

// Media types of answers.
const (
	JSON    = "application/json"
	Problem = "application/problem+json"
)

// Reply is an answer. The answer to a HEAD has the body of the GET, and the server sends only its length.
type Reply struct {
	Status      int
	ContentType string // empty if there is no body
	Location    string // the path of a created entity, or empty
	Allow       string // the methods of the path, or empty
	Body        []byte
}

// Service answers requests from a store.
type Service struct {
	store *store.Store
}

// New returns a service over an empty store.
func New() *Service {
	return &Service{store: store.New()}
}

// Answer answers a request. The body of the reply uses the memory of space if it is large enough. contentType is the
// Content-Type of the request, or empty.
func (s *Service) Answer(space []byte, method, target, contentType string, body []byte) Reply {
	path, _, _ := strings.Cut(target, "?")
	segment, ok := strings.CutPrefix(path, "/")
	switch {
	case path == "*" && method == "OPTIONS", segment == "" && ok:
		return s.root(space, method, contentType, body)
	case !ok || strings.Contains(segment, "/"):
		return Failure(space, 404, "there is nothing at this path")
	}
	id, err := strconv.ParseInt(segment, 10, 64)
	if err != nil || segment[0] == '+' {
		return Failure(space, 400, "the path is no id: digits within 64 bits, with or without a minus")
	}
	return s.one(space, method, id, contentType, body)
}

func (s *Service) root(space []byte, method, contentType string, body []byte) Reply {
	const allow = "OPTIONS, PUT"
	switch method {
	case "PUT":
		return s.put(space, nil, contentType, body)
	case "OPTIONS":
		return Reply{Status: 204, Allow: allow}
	default:
		return notAllowed(space, allow)
	}
}

func (s *Service) one(space []byte, method string, id int64, contentType string, body []byte) Reply {
	const allow = "DELETE, GET, HEAD, OPTIONS, PUT"
	switch method {
	case "GET", "HEAD":
		if shown, ok := s.store.AppendJSON(id, space[:0]); ok {
			return Reply{Status: 200, ContentType: JSON, Body: shown}
		}
		return Failure(space, 404, "there is no entity of this id")
	case "PUT":
		return s.put(space, &id, contentType, body)
	case "DELETE":
		if s.store.Remove(id) {
			return Reply{Status: 204}
		}
		return Failure(space, 404, "there is no entity of this id")
	case "OPTIONS":
		return Reply{Status: 204, Allow: allow}
	default:
		return notAllowed(space, allow)
	}
}

func (s *Service) put(space []byte, id *int64, contentType string, body []byte) Reply {
	if contentType != "" && contentType != JSON && !isJSON(contentType) {
		return Failure(space, 415, "the Content-Type is not JSON")
	}
	read, err := entity.Decode(body)
	switch {
	case errors.Is(err, entity.ErrSyntax):
		return Failure(space, 400, err.Error())
	case err != nil:
		return Failure(space, 422, err.Error())
	case id != nil && *id != read.ID:
		return Failure(space, 400, "the path and the entity have different ids")
	case s.store.Put(read):
		return Reply{Status: 201, Location: "/" + strconv.FormatInt(read.ID, 10)}
	default:
		return Reply{Status: 200}
	}
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == JSON || strings.HasSuffix(media, "+json"))
}

func notAllowed(space []byte, allow string) Reply {
	reply := Failure(space, 405, "this path has other methods")
	reply.Allow = allow
	return reply
}

// Failure returns the answer for an error: a problem of RFC 9457. why is a sentence of printable ASCII, which strconv
// and JSON quote in the same way.
func Failure(space []byte, status int, why string) Reply {
	body := append(space[:0], `{"status":`...)
	body = strconv.AppendInt(body, int64(status), 10)
	body = append(body, `,"detail":`...)
	body = strconv.AppendQuote(body, why)
	return Reply{Status: status, ContentType: Problem, Body: append(body, '}')}
}
