package main

import (
	"testing"

	"polyserve/peers/internal/kit"
	"polyserve/peers/internal/service"
)

func TestTheContractAndTheDrain(t *testing.T) {
	kit.Whole(t, newServer(service.New()))
}
