// Command welcome is article D in fasthttp: ListenAndServe with one handler, which sets two headers and the body.
//
// Deviations from the listing: the listener is made first and served by fasthttp.Serve, which ListenAndServe calls in the
// same way, because the instrument needs the free port; the server ends at a signal; answers are not counted, because the
// listing has nowhere to count them.
package main

import (
	"fmt"
	"os"

	"github.com/valyala/fasthttp"

	"polyserve/twins/internal/control"
)

func welcome(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set("Content-Type", "application/json")
	ctx.Response.Header.Set("Server", "go-fasts")
	ctx.WriteString("Welcome!")
}

func main() {
	flags := control.Parse()
	listener, err := flags.Listen()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		flags.AwaitEnd()
		flags.PrintCounts()
		os.Exit(0)
	}()
	if err := fasthttp.Serve(listener, welcome); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
