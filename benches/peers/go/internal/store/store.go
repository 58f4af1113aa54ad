// Package store keeps the entities: the two stores of the published twin.
//
// Invariant: a PUT that is answered is seen by every GET that begins later, and of two racing first PUTs one creates, the
// other replaces, and the later one stays. Cost: a lock or two for each request.
package store

import (
	"fmt"
	"sync"

	"polyserve/peers/internal/entity"
)

// Store keeps entities by their id, for many goroutines at once.
type Store interface {
	// AppendJSON writes the entity of that id behind what is in to; false where there is none.
	AppendJSON(id int64, to []byte) ([]byte, bool)
	// Put stores an entity; true where its id is new.
	Put(entity.Entity) bool
	// Remove forgets an id; false where there was none.
	Remove(id int64) bool
}

// New is an empty store of that kind: rwmutex or syncmap.
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

// RWMutex is a map behind a lock, and a lock for each entity in it. Its three cases: a read takes the map's read lock and
// the entity's; a PUT of a new id takes the map's write lock; a PUT of a known id the map's read lock and the entity's write
// lock.
type RWMutex struct {
	lock    sync.RWMutex
	entries map[int64]*entry
}

// AppendJSON writes under both read locks.
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

// Put looks for the id again under the write lock: another first PUT may have been faster.
func (s *RWMutex) Put(e entity.Entity) bool {
	if s.replace(e) {
		return false
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if found, ok := s.entries[e.ID]; ok {
		found.entity = e // whoever holds the entity's lock holds the map's read lock too, so nobody does
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

// SyncMap is a sync.Map of entities that never change: a PUT swaps one for another.
type SyncMap struct {
	entities sync.Map // int64 -> *entity.Entity
}

// AppendJSON takes no lock where the map has settled.
func (s *SyncMap) AppendJSON(id int64, to []byte) ([]byte, bool) {
	found, ok := s.entities.Load(id)
	if !ok {
		return to, false
	}
	return found.(*entity.Entity).AppendJSON(to), true
}

// Put swaps.
func (s *SyncMap) Put(e entity.Entity) bool {
	_, known := s.entities.Swap(e.ID, &e)
	return !known
}

// Remove deletes what is there.
func (s *SyncMap) Remove(id int64) bool {
	_, known := s.entities.LoadAndDelete(id)
	return known
}
