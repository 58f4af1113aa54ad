// Command nethttp serves the entities on net/http: a goroutine for each connection.
package main

import (
	"polyserve/peers/internal/library"
	"polyserve/peers/internal/run"
	"polyserve/peers/internal/service"
)

func main() {
	library.Main("nethttp", func(entities *service.Service) run.Server { return newServer(entities) })
}
