package entity

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestJSONIsTheBytesThatPolyserveAnswers(t *testing.T) {
	for want, entity := range map[string]Entity{
		`{"id":-5,"description":"a\"b","value":60.750847}`:             {-5, `a"b`, 60.750847},
		`{"id":1,"description":"","value":60.0}`:                       {1, "", 60},
		`{"id":1,"description":"<&>\u0001\n\\é\u001f","value":-0.0}`:   {1, "<&>\x01\n\\é\x1f", math.Copysign(0, -1)},
		`{"id":1,"description":"\b\f\r\t","value":1e16}`:               {1, "\b\f\r\t", 1e16},
		`{"id":1,"description":"x","value":1000000000000000.0}`:        {1, "x", 1e15},
		`{"id":1,"description":"x","value":1.5e-7}`:                    {1, "x", 1.5e-7},
		`{"id":1,"description":"x","value":0.00001}`:                   {1, "x", 1e-5},
		`{"id":1,"description":"x","value":1.7976931348623157e308}`:    {1, "x", math.MaxFloat64},
		`{"id":-9223372036854775808,"description":"x","value":5e-324}`: {math.MinInt64, "x", 5e-324},
	} {
		if got := string(entity.AppendJSON(nil)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		back, err := Decode([]byte(want))
		if err != nil || back.ID != entity.ID || back.Description != entity.Description ||
			math.Float64bits(back.Value) != math.Float64bits(entity.Value) {
			t.Errorf("%s is read as %v, %v", want, back, err)
		}
	}
}

func TestEveryValueComesBackBitForBit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		value := math.Float64frombits(random.Uint64())
		if math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		entity := Entity{1, "x", value}
		text := entity.AppendJSON(nil)
		if !json.Valid(text) {
			t.Fatalf("%s is not JSON", text)
		}
		if back, err := Decode(text); err != nil || math.Float64bits(back.Value) != math.Float64bits(value) {
			t.Fatalf("%s is read as %v, %v", text, back, err)
		}
	}
}

func TestBodiesThatAreNoEntity(t *testing.T) {
	nested := strings.Repeat("[", 1_000_000)
	for _, body := range []string{"", "{", "nonsense", `{"id":1,"description":"x","value":1}x`, "\"\xff\"", nested} {
		if _, err := Decode([]byte(body)); !errors.Is(err, ErrSyntax) {
			t.Errorf("%.40q: %v", body, err)
		}
	}
	for _, body := range []string{
		"[]", "null", "1", `{"id":1,"value":2}`, `{"id":"1","description":"x","value":2}`,
		`{"id":1.5,"description":"x","value":2}`, `{"id":9223372036854775808,"description":"x","value":2}`,
		`{"id":1,"description":"x","value":1e999}`, `{"id":1,"description":null,"value":1}`,
	} {
		if _, err := Decode([]byte(body)); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
