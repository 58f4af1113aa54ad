// Package store has the entity store of the published server, without its race.
//
// Invariant: a PUT that has been answered is visible to every GET that begins later. Of two concurrent first PUTs, one
// creates the entity and the other replaces it, and the later one remains. Cost: one or two locks per request.
package store

import (
	"sync"

	"polyserve/peers/internal/entity"
)

type entry struct {
	lock   sync.RWMutex
	entity entity.Entity
}

// Store is a map behind a lock, with a lock for each entity. Its methods may be called concurrently. A read takes the read locks of the map and of the
// entity. A PUT of a new id takes the write lock of the map. A PUT of a stored id takes the read lock of the map and
// the write lock of the entity.
type Store struct {
	lock    sync.RWMutex
	entries map[int64]*entry
}

// New returns an empty store.
func New() *Store {
	return &Store{entries: make(map[int64]*entry)}
}

// AppendJSON appends the JSON of the entity to a buffer, and holds both read locks meanwhile. It returns false if the id is
// not stored.
func (s *Store) AppendJSON(id int64, to []byte) ([]byte, bool) {
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

// Put stores an entity. It returns true if the id is new. It looks for the id again under the write lock, because a concurrent PUT may have created it.
func (s *Store) Put(e entity.Entity) bool {
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

func (s *Store) replace(e entity.Entity) bool {
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

// Remove removes an entity, under the map's write lock. It returns false if the id is not stored.
func (s *Store) Remove(id int64) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	_, ok := s.entries[id]
	delete(s.entries, id)
	return ok
}
