package main

import (
	"testing"

	"polyserve/peers/internal/kit"
	"polyserve/peers/internal/service"
	"polyserve/peers/internal/store"
)

func TestTheContractAndTheDrain(t *testing.T) {
	entities, err := store.New("rwmutex")
	if err != nil {
		t.Fatal(err)
	}
	serving := kit.Start(t, newServer(service.New(entities)))
	asked := kit.Contract(t, serving) + kit.Load(t, serving, false) + kit.Load(t, serving, true)
	kit.Drains(t, serving, asked)
}
