// Command fasthttp serves the same entities as the twin, on fasthttp: a pool of goroutines, one for each connection.
package main

import (
	"polyserve/peers/internal/library"
	"polyserve/peers/internal/run"
	"polyserve/peers/internal/service"
)

func main() {
	library.Main("fasthttp", func(entities *service.Service) run.Server { return newServer(entities) })
}
