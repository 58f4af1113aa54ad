// Package entity has the stored type and its JSON, which has the same bytes as from polyserve's own service.
//
// Cost: writing allocates only if the buffer has to grow. Reading costs what encoding/json costs.
package entity

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

// Entity is a stored entity.
type Entity struct {
	ID          int64
	Description string
	Value       float64
}

// ErrSyntax means that a body is not JSON.
var ErrSyntax = errors.New("the body is not JSON")

// ErrShape means that a body is JSON but not an entity.
var ErrShape = errors.New("the body is JSON but no entity: {\"id\":1,\"description\":\"...\",\"value\":1.5}")

// Decode parses an entity. Field names are matched as in encoding/json: case is ignored, and the last of several equal
// fields counts.
func Decode(body []byte) (Entity, error) {
	if !utf8.Valid(body) {
		return Entity{}, ErrSyntax
	}
	var read struct {
		ID          *int64   `json:"id"`
		Description *string  `json:"description"`
		Value       *float64 `json:"value"`
	}
	if err := json.Unmarshal(body, &read); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return Entity{}, ErrSyntax
		}
		return Entity{}, ErrShape
	}
	if read.ID == nil || read.Description == nil || read.Value == nil {
		return Entity{}, ErrShape
	}
	return Entity{ID: *read.ID, Description: *read.Description, Value: *read.Value}, nil
}

// AppendJSON appends the entity to a buffer, and returns the buffer.
func (e *Entity) AppendJSON(to []byte) []byte {
	to = append(to, `{"id":`...)
	to = strconv.AppendInt(to, e.ID, 10)
	to = append(to, `,"description":`...)
	to = appendString(to, e.Description)
	to = append(to, `,"value":`...)
	to = appendFloat(to, e.Value)
	return append(to, '}')
}

const hex = "0123456789abcdef"

// appendString appends a JSON string with only the required escapes. encoding/json also escapes for HTML.
func appendString(to []byte, text string) []byte {
	to = append(to, '"')
	begun := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		to = append(to, text[begun:i]...)
		begun = i + 1
		switch c {
		case '"', '\\':
			to = append(to, '\\', c)
		case '\b':
			to = append(to, `\b`...)
		case '\f':
			to = append(to, `\f`...)
		case '\n':
			to = append(to, `\n`...)
		case '\r':
			to = append(to, `\r`...)
		case '\t':
			to = append(to, `\t`...)
		default:
			to = append(to, `\u00`...)
			to = append(to, hex[c>>4], hex[c&15])
		}
	}
	return append(append(to, text[begun:]...), '"')
}

// appendFloat appends the shortest digits that parse to the same bits. Like serde_json, it appends ".0" to an integer,
// so that the value stays a float. It uses an exponent from 1e16 on and below 1e-5.
func appendFloat(to []byte, value float64) []byte {
	size := math.Abs(value)
	if size != 0 && (size < 1e-5 || size >= 1e16) {
		return appendExponent(to, value)
	}
	start := len(to)
	to = strconv.AppendFloat(to, value, 'f', -1, 64)
	for _, c := range to[start:] {
		if c == '.' {
			return to
		}
	}
	return append(to, ".0"...)
}

// appendExponent writes 1e-7 and 1e16, where Go writes 1e-07 and 1e+16.
func appendExponent(to []byte, value float64) []byte {
	var space [32]byte
	text := strconv.AppendFloat(space[:0], value, 'e', -1, 64)
	for i, c := range text {
		if c != 'e' {
			continue
		}
		to = append(to, text[:i+1]...)
		exponent, _ := strconv.Atoi(string(text[i+1:])) // AppendFloat has written valid digits
		return strconv.AppendInt(to, int64(exponent), 10)
	}
	return append(to, text...)
}
