package wire

import (
	"strconv"
	"strings"
)

// framing describes the body of a request.
type framing struct {
	length  int64 // in bytes; 0 if the head has no length
	chunked bool
	expects bool // the client waits for a 100 before it sends the body
}

// parse parses a head, whose lines end with CR LF. most is the max number of fields.
func parse(head string, most int, request *Request, framing *framing) error {
	line, rest, _ := strings.Cut(head, "\r\n")
	*request = Request{}
	if err := parseLine(line, request); err != nil {
		return err
	}
	f := fields{hosts: 0, length: -1}
	for count := 0; rest != ""; count++ {
		if count == most {
			return refuse(431, "there are too many fields")
		}
		line, rest, _ = strings.Cut(rest, "\r\n")
		if err := f.take(line, request); err != nil {
			return err
		}
	}
	if !request.Old && f.hosts != 1 {
		return refuse(400, "there is not exactly one Host")
	}
	request.KeepAlive = !f.close && (!request.Old || f.keep)
	return f.frame(request.Old, framing)
}

func parseLine(line string, request *Request) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || !isToken(method) || !isTarget(target) {
		return refuse(400, "the request line is none")
	}
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		request.Old = true
	default:
		if len(version) == 8 && strings.HasPrefix(version, "HTTP/1.") && version[7] >= '2' && version[7] <= '9' {
			return refuse(505, "this version of HTTP is not spoken here")
		}
		return refuse(400, "the request line has no version of HTTP/1")
	}
	switch method {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH":
	default:
		return refuse(501, "this method is not known here")
	}
	request.Method = method
	request.Target = target
	if target[0] == '/' || target == "*" && method == "OPTIONS" {
		return nil
	}
	return absolute(request)
}

// absolute reduces a target such as http://host/path to its path.
func absolute(request *Request) error {
	scheme, rest, ok := strings.Cut(request.Target, "://")
	if !ok || !(strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")) {
		return refuse(400, "the target is neither a path nor a URL")
	}
	host, path := rest, "/"
	if at := strings.IndexAny(rest, "/?"); at >= 0 {
		host, path = rest[:at], rest[at:]
		if path[0] == '?' {
			path = "/" + path
		}
	}
	if !isHost(host) || host == "" {
		return refuse(400, "the target has no host")
	}
	request.Target = path
	return nil
}

// fields has the content of the header fields that matter here.
type fields struct {
	hosts       int
	length      int64
	codings     []string
	close, keep bool
	expects     bool
}

func (f *fields) take(line string, request *Request) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return refuse(400, "a field has no name")
	}
	value = strings.Trim(value, " \t")
	if !clean(value) {
		return refuse(400, "a field has control bytes")
	}
	switch len(name) { // the length rules out most names without a comparison
	case len("host"):
		if strings.EqualFold(name, "host") {
			f.hosts++
			if !isHost(value) {
				return refuse(400, "the Host is none")
			}
		}
	case len("expect"):
		if strings.EqualFold(name, "expect") {
			if !strings.EqualFold(value, "100-continue") {
				return refuse(417, "what is expected is not known here")
			}
			f.expects = true
		}
	case len("connection"):
		if strings.EqualFold(name, "connection") {
			for option := range strings.SplitSeq(value, ",") {
				option = strings.Trim(option, " \t")
				f.close = f.close || strings.EqualFold(option, "close")
				f.keep = f.keep || strings.EqualFold(option, "keep-alive")
			}
		}
	case len("content-type"):
		if strings.EqualFold(name, "content-type") {
			request.ContentType = value
		}
	case len("content-length"):
		if strings.EqualFold(name, "content-length") {
			return f.takeLength(value)
		}
	case len("transfer-encoding"):
		if strings.EqualFold(name, "transfer-encoding") {
			for coding := range strings.SplitSeq(value, ",") {
				f.codings = append(f.codings, strings.ToLower(strings.Trim(coding, " \t")))
			}
		}
	}
	return nil
}

// takeLength parses a Content-Length. The same length may be repeated.
func (f *fields) takeLength(value string) error {
	for part := range strings.SplitSeq(value, ",") {
		part = strings.Trim(part, " \t")
		length, err := strconv.ParseUint(part, 10, 63)
		if err != nil || (f.length >= 0 && f.length != int64(length)) {
			return refuse(400, "the Content-Length is none")
		}
		f.length = int64(length)
	}
	return nil
}

func (f *fields) frame(old bool, framing *framing) error {
	framing.length, framing.chunked, framing.expects = max(f.length, 0), len(f.codings) > 0, f.expects
	switch {
	case !framing.chunked:
		return nil
	case f.length >= 0:
		return refuse(400, "there is both a Content-Length and a Transfer-Encoding")
	case old:
		return refuse(400, "HTTP/1.0 has no Transfer-Encoding")
	case f.codings[len(f.codings)-1] != "chunked":
		return refuse(400, "the last Transfer-Encoding is not chunked")
	case len(f.codings) > 1:
		return refuse(501, "only chunked is known here")
	default:
		return nil
	}
}

// isToken returns whether text is a token of RFC 9110.
func isToken(text string) bool {
	for i := 0; i < len(text); i++ {
		if !isTokenByte[text[i]] {
			return false
		}
	}
	return text != ""
}

var isTokenByte = func() (is [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		is[c] = true
	}
	return is
}()

func isTarget(text string) bool {
	for i := 0; i < len(text); i++ {
		if text[i] <= ' ' || text[i] == 0x7f {
			return false
		}
	}
	return text != ""
}

// isHost returns whether text can be a host and a port. An empty host is allowed, as in RFC 9110.
func isHost(text string) bool {
	host, port := text, ""
	if at := strings.LastIndexByte(text, ':'); at > strings.LastIndexByte(text, ']') {
		host, port = text[:at], text[at+1:]
	}
	for i := 0; i < len(port); i++ {
		if port[i] < '0' || port[i] > '9' {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && !strings.ContainsAny(inner, "[]"+noHost)
	}
	return !strings.ContainsAny(host, "[]:"+noHost)
}

// noHost has the characters that a host cannot contain.
const noHost = " \t,/?#@\\<>\"{}|^`"

// clean returns whether text has no control bytes except tabs.
func clean(text string) bool {
	for i := 0; i < len(text); i++ {
		if c := text[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}
