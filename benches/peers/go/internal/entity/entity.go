// Package entity is what the servers store, and its JSON: the same bytes as polyserve's own service writes.
//
// Cost: writing takes no allocation beyond the buffer's; reading is encoding/json's.
package entity

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

// Entity is one of those that are stored.
type Entity struct {
	ID          int64
	Description string
	Value       float64
}

// ErrSyntax says that a body is not JSON at all.
var ErrSyntax = errors.New("the body is not JSON")

// ErrShape says that a body is JSON and no entity.
var ErrShape = errors.New("the body is JSON but no entity: {\"id\":1,\"description\":\"...\",\"value\":1.5}")

// Decode reads an entity. Names are matched as encoding/json matches them: whatever their case, and the last one counts.
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

// AppendJSON writes the entity behind what is in to.
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

// appendString escapes what JSON demands and no more; encoding/json escapes for HTML beside it.
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

// appendFloat writes the shortest digits that are read as the same bits. Like serde_json it keeps the ".0" of an integer,
// so that the value stays a float, and takes an exponent from 1e16 on and below 1e-5.
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

// appendExponent writes 1e-7 where Go says 1e-07, and 1e16 where it says 1e+16.
func appendExponent(to []byte, value float64) []byte {
	var space [32]byte
	text := strconv.AppendFloat(space[:0], value, 'e', -1, 64)
	for i, c := range text {
		if c != 'e' {
			continue
		}
		to = append(to, text[:i+1]...)
		exponent, _ := strconv.Atoi(string(text[i+1:])) // Go has just written it
		return strconv.AppendInt(to, int64(exponent), 10)
	}
	return append(to, text...)
}
