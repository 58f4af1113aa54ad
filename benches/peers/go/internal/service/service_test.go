package service

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestTheContract(t *testing.T) {
	service := New()
	const entity = `{"id":1,"description":"d","value":60.750847}`
	for i, step := range []struct{ method, target, contentType, body, want string }{
		{"GET", "/1", "", "", "404"},
		{"PUT", "/", "", entity, "201 Location /1"},
		{"PUT", "/", "application/json; charset=utf-8", entity, "200"},
		{"PUT", "/1", "application/merge-patch+json", entity, "200"},
		{"PUT", "/2", "", entity, "400"},
		{"PUT", "/", "text/plain", entity, "415"},
		{"PUT", "/", "", "{", "400"},
		{"PUT", "/", "", "[]", "422"},
		{"GET", "/1?x=/2", "", "", "200 " + entity},
		{"HEAD", "/1", "", "", "200 " + entity},
		{"GET", "/1/2", "", "", "404"},
		{"GET", "/x", "", "", "400"},
		{"GET", "/+1", "", "", "400"},
		{"GET", "/9223372036854775808", "", "", "400"},
		{"POST", "/", "", "", "405 Allow OPTIONS, PUT"},
		{"POST", "/1", "", "", "405 Allow DELETE, GET, HEAD, OPTIONS, PUT"},
		{"GET", "/", "", "", "405 Allow OPTIONS, PUT"},
		{"OPTIONS", "*", "", "", "204 Allow OPTIONS, PUT"},
		{"OPTIONS", "/1", "", "", "204 Allow DELETE, GET, HEAD, OPTIONS, PUT"},
		{"DELETE", "/1", "", "", "204"},
		{"DELETE", "/1", "", "", "404"},
	} {
		reply := service.Answer(make([]byte, 0, 128), step.method, step.target, step.contentType, []byte(step.body))
		got := fmt.Sprint(reply.Status)
		if reply.Location != "" {
			got += " Location " + reply.Location
		}
		if reply.Allow != "" {
			got += " Allow " + reply.Allow
		}
		if reply.ContentType == JSON {
			got += " " + string(reply.Body)
		}
		if got != step.want {
			t.Errorf("%d: %s %s is answered %s, not %s", i, step.method, step.target, got, step.want)
		}
		if reply.Status >= 400 && (reply.ContentType != Problem || !json.Valid(reply.Body)) {
			t.Errorf("%d: %s %s", i, reply.ContentType, reply.Body)
		}
		if (reply.ContentType == "") != (len(reply.Body) == 0) {
			t.Errorf("%d: %q with a body of %d bytes", i, reply.ContentType, len(reply.Body))
		}
	}
}
