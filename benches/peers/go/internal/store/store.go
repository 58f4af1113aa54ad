// Package store has the two entity stores of the published twin.
//
// Invariant: a PUT that has been answered is visible to every GET that begins later. Of two concurrent first PUTs, one
// creates the entity and the other replaces it, and the later one remains. Cost: one or two locks per request.
package store

import (
	"fmt"
	"sync"

	"polyserve/peers/internal/entity"
)

// Store stores entities by id. Its methods may be called concurrently.
type Store interface {
	// AppendJSON appends the JSON of the entity to a buffer. It returns false if the id is not stored.
	AppendJSON(id int64, to []byte) ([]byte, bool)
	// Put stores an entity. It returns true if the id is new.
	Put(entity.Entity) bool
	// Remove removes an entity. It returns false if the id is not stored.
	Remove(id int64) bool
}

// New returns an empty store of the given kind: rwmutex or syncmap.
func New(kind string) (Store, error) {
	switch kind {
	case "rwmutex":
		return &RWMutex{entries: make(map[int64]*entry)}, nil
	case "syncmap":
		return &SyncMap{}, nil
	default:
		return nil, fmt.Errorf("there is no store %q: they are rwmutex and syncmap", kind)
	}
}

type entry struct {
	lock   sync.RWMutex
	entity entity.Entity
}

// RWMutex is a map behind a lock, with a lock for each entity. A read takes the read locks of the map and of the
// entity. A PUT of a new id takes the write lock of the map. A PUT of a stored id takes the read lock of the map and
// the write lock of the entity.
type RWMutex struct {
	lock    sync.RWMutex
	entries map[int64]*entry
}

// AppendJSON holds both read locks while it writes.
func (s *RWMutex) AppendJSON(id int64, to []byte) ([]byte, bool) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	found, ok := s.entries[id]
	if !ok {
		return to, false
	}
	found.lock.RLock()
	defer found.lock.RUnlock()
	return found.entity.AppendJSON(to), true
}

// Put looks for the id again under the write lock, because a concurrent PUT may have created it.
func (s *RWMutex) Put(e entity.Entity) bool {
	if s.replace(e) {
		return false
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if found, ok := s.entries[e.ID]; ok {
		found.entity = e // the entity's lock is free: it is only taken under the map's read lock
		return false
	}
	s.entries[e.ID] = &entry{entity: e}
	return true
}

func (s *RWMutex) replace(e entity.Entity) bool {
	s.lock.RLock()
	defer s.lock.RUnlock()
	found, ok := s.entries[e.ID]
	if ok {
		found.lock.Lock()
		found.entity = e
		found.lock.Unlock()
	}
	return ok
}

// Remove takes the map's write lock.
func (s *RWMutex) Remove(id int64) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	_, ok := s.entries[id]
	delete(s.entries, id)
	return ok
}

// SyncMap is a sync.Map of immutable entities. A PUT swaps the entity.
type SyncMap struct {
	entities sync.Map // int64 -> *entity.Entity
}

// AppendJSON takes no lock.
func (s *SyncMap) AppendJSON(id int64, to []byte) ([]byte, bool) {
	found, ok := s.entities.Load(id)
	if !ok {
		return to, false
	}
	return found.(*entity.Entity).AppendJSON(to), true
}

// Put swaps the entity.
func (s *SyncMap) Put(e entity.Entity) bool {
	_, known := s.entities.Swap(e.ID, &e)
	return !known
}

// Remove deletes the entity.
func (s *SyncMap) Remove(id int64) bool {
	_, known := s.entities.LoadAndDelete(id)
	return known
}
