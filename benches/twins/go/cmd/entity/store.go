package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
)

// number is a value whose JSON has the digits that the server in Rust writes.
type number float64

// MarshalJSON writes the shortest digits that are the same number, and ".0" after an integer.
func (n number) MarshalJSON() ([]byte, error) {
	value := float64(n)
	if math.IsInf(value, 0) || math.IsNaN(value) {
		return nil, fmt.Errorf("%v has no JSON", value)
	}
	text := strconv.FormatFloat(value, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return []byte(text), nil
}

// Entity is a stored entity.
type Entity struct {
	ID          int64  `json:"id"`
	Description string `json:"description"`
	Value       number `json:"value"`
}

type store interface {
	// get returns the entity's JSON, and whether the id is stored.
	get(id int64) ([]byte, bool, error)
	// put stores the entity, and returns whether the id was found missing.
	put(entity *Entity) bool
}

func newStore(kind string) (store, error) {
	switch kind {
	case "rwmutex":
		return &locked{entries: map[int64]*entry{}}, nil
	case "syncmap":
		return &concurrent{}, nil
	}
	return nil, fmt.Errorf("there is no store %q: they are rwmutex and syncmap", kind)
}

type entry struct {
	lock   sync.RWMutex
	entity Entity
}

// locked is the store of the article's text.
type locked struct {
	lock    sync.RWMutex
	entries map[int64]*entry
}

func (s *locked) get(id int64) ([]byte, bool, error) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	found, ok := s.entries[id]
	if !ok {
		return nil, false, nil
	}
	found.lock.RLock()
	defer found.lock.RUnlock()
	body, err := json.Marshal(&found.entity)
	return body, true, err
}

func (s *locked) put(entity *Entity) bool {
	s.lock.RLock()
	_, exists := s.entries[entity.ID]
	s.lock.RUnlock()
	if exists {
		s.lock.RLock()
		found := s.entries[entity.ID]
		found.lock.Lock()
		found.entity = *entity
		found.lock.Unlock()
		s.lock.RUnlock()
		return false
	}
	s.lock.Lock()
	s.entries[entity.ID] = &entry{entity: *entity} // the race: another PUT may have inserted the id meanwhile
	s.lock.Unlock()
	return true
}

// concurrent is the store of the article's second variant.
type concurrent struct{ entities sync.Map }

func (s *concurrent) get(id int64) ([]byte, bool, error) {
	found, ok := s.entities.Load(id)
	if !ok {
		return nil, false, nil
	}
	body, err := json.Marshal(found)
	return body, true, err
}

func (s *concurrent) put(entity *Entity) bool {
	_, replaced := s.entities.Swap(entity.ID, entity)
	return !replaced
}
