// Command airlock is the server and its client in one binary. What makes or needs sandboxes is Linux only; elsewhere the
// client commands remain, and the others say so (elsewhere.go).
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (SIGINT), 143 terminated (SIGTERM); a command that has others
// says so in its help. For serve a signal is the order to end, so that it ends with 0.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:])) // run has closed all and says the code
}

// run is main without the exit, so that script tests can call it in their own process.
func run(args []string) int {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
		text := "airlock: " + s.Error()
		if err.Error() != s.Error() {
			text += " (" + err.Error() + ")"
		}
		fmt.Fprintln(os.Stderr, printable(text))
		return 128 + int(s)
	}
	if code, ok := errors.AsType[exitError](err); ok {
		if code.err != nil {
			fmt.Fprintln(os.Stderr, "airlock:", printable(code.err.Error()))
		}
		return code.code
	}
	fmt.Fprintln(os.Stderr, "airlock:", printable(err.Error())) // a server or a file name may have a part in it
	if advice := adviceFor(err); advice != "" {
		fmt.Fprintln(os.Stderr, advice)
	}
	return 1
}

// signalError is why a command's context ended.
type signalError syscall.Signal

func (s signalError) Error() string {
	if s == signalError(syscall.SIGINT) {
		return "interrupted"
	}
	return syscall.Signal(s).String()
}

// untilSignal ends the context at the first signal. A second one ends the program at once; serve has its own use for it.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			if s, ok := s.(syscall.Signal); ok {
				cancel(signalError(s))
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// interruptible is r until ctx ends: a read from a terminal or a pipe would outlast the signal that is to end the command.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { pw.CloseWithError(context.Cause(ctx)) })
	return pr
}

// exitError carries an exit code other than 1; a nil err prints nothing more.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "airlock",
		Short: "Run a model's code on your files, safely, on your own machine",
		Long: "Run a model's code on your files, safely, on your own machine.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 terminated; a command that has others says so.\n" +
			"serve ends with 0 when a signal ends it.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(commands()...)
	helpCommand(root)
	root.InitDefaultCompletionCmd() // now, so that it is held to the same
	checkUsage(root)
	return root
}
