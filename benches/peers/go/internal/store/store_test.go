package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"polyserve/peers/internal/entity"
)

func shown(store *Store, id int64) string {
	text, ok := store.AppendJSON(id, []byte("> "))
	return fmt.Sprint(string(text), " ", ok)
}

func TestNewKnownAbsent(t *testing.T) {
	store := New()
	if got := shown(store, 1); got != ">  false" {
		t.Error(got)
	}
	if !store.Put(entity.Entity{ID: 1, Description: "a", Value: 1}) {
		t.Error("the first PUT is new")
	}
	if store.Put(entity.Entity{ID: 1, Description: "b", Value: 2}) {
		t.Error("the second PUT is not")
	}
	if got := shown(store, 1); got != `> {"id":1,"description":"b","value":2.0} true` {
		t.Error(got)
	}
	if !store.Remove(1) || store.Remove(1) || shown(store, 1) != ">  false" {
		t.Error("it is removed once")
	}
	if !store.Put(entity.Entity{ID: 1}) {
		t.Error("after that it is new again")
	}
}

// Of concurrent first PUTs exactly one creates the entity. A reader sees a complete entity or none. The final entity is
// one of those that were written.
func TestRacingFirstPuts(t *testing.T) {
	const ids, writers = 500, 8
	store := New()
	var created [ids]atomic.Int32
	var wait sync.WaitGroup
	for writer := range writers {
		wait.Go(func() {
			for id := range int64(ids) {
				row := entity.Entity{ID: id, Description: fmt.Sprint("w", writer), Value: float64(writer)}
				if store.Put(row) {
					created[id].Add(1)
				}
				if !whole(shown(store, id), id, writers) {
					t.Errorf("id %d is torn: %s", id, shown(store, id))
				}
			}
		})
	}
	wait.Wait()
	for id := range created {
		if count := created[id].Load(); count != 1 {
			t.Errorf("id %d was created %d times", id, count)
		}
	}
}

func whole(text string, id int64, writers int) bool {
	for writer := range writers {
		if text == fmt.Sprintf(`> {"id":%d,"description":"w%d","value":%d.0} true`, id, writer, writer) {
			return true
		}
	}
	return false
}

// A goroutine reads its own last PUT if no other goroutine writes that id, whatever the others write to other ids.
func TestEveryoneReadsOwnWrites(t *testing.T) {
	store := New()
	var wait sync.WaitGroup
	for id := range int64(8) {
		wait.Go(func() {
			for n := range 2_000 {
				store.Put(entity.Entity{ID: id, Description: "x", Value: float64(n)})
				if got, want := shown(store, id), fmt.Sprintf(`> {"id":%d,"description":"x","value":%d.0} true`, id, n); got != want {
					t.Errorf("got %s, want %s", got, want)
					return
				}
				if n%3 == 0 && !store.Remove(id) {
					t.Errorf("id %d was lost", id)
				}
			}
		})
	}
	wait.Wait()
}
