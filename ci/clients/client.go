// The requests of ci/clients.sh by Go's net/http: client URL CA
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"time"
)

const mib = 1 << 20

type entity struct {
	ID          int     `json:"id"`
	Description string  `json:"description"`
	Value       float64 `json:"value"`
}

var client *http.Client

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func must[T any](value T, err error) T {
	if err != nil {
		fail("%v", err)
	}
	return value
}

// The JSON of an entity of this number of bytes, at least.
func body(id, length int) []byte {
	frame := len(must(json.Marshal(entity{id, "", 1.5})))
	return must(json.Marshal(entity{id, strings.Repeat("x", max(15, length-frame)), 1.5}))
}

// ask sends a request. Returns the content and the tag of the answer, and whether the connection was used before.
func ask(method, url string, status int, content []byte, tag string) ([]byte, string, bool) {
	request := must(http.NewRequest(method, url, bytes.NewReader(content)))
	request.Header.Set("Content-Type", "application/json")
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	kept := false
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { kept = info.Reused }}
	answer := must(client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace))))
	defer answer.Body.Close()
	received := must(io.ReadAll(answer.Body))
	if answer.StatusCode != status {
		fail("%s %s: %d instead of %d: %s", method, url, answer.StatusCode, status, received)
	}
	return received, answer.Header.Get("ETag"), kept
}

func main() {
	url, pool := os.Args[1], x509.NewCertPool()
	if !pool.AppendCertsFromPEM(must(os.ReadFile(os.Args[2]))) {
		fail("%s has no certificate", os.Args[2])
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	ask("PUT", url+"/", 201, body(301, 0), "")
	content, tag, kept := ask("GET", url+"/301", 200, nil, "")
	if !kept {
		fail("the connection was not kept")
	}
	if !bytes.Equal(content, body(301, 0)) {
		fail("the entity: %s", content)
	}
	ask("GET", url+"/301", 304, nil, tag)
	ask("PUT", url+"/", 201, body(302, mib), "")
	ask("DELETE", url+"/302", 204, nil, "")
	ask("DELETE", url+"/301", 204, nil, "")
	ask("GET", url+"/301", 404, nil, "")
	ask("PUT", url+"/", 413, body(303, mib+1), "")
}
