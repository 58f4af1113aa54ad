package main

import (
	"testing"

	"polyserve/peers/internal/kit"
	"polyserve/peers/internal/library"
)

func TestTheContractAndTheDrain(t *testing.T) {
	entities, err := library.Service()
	if err != nil {
		t.Fatal(err)
	}
	kit.Whole(t, newServer(entities))
}
