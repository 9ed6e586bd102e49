package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// execRequest is the body of the exec route.
type execRequest struct {
	Argv    []string          `json:"argv"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Stdin   string            `json:"stdin_base64,omitempty"`
	Timeout float64           `json:"timeout_seconds,omitempty"`
}

// execExit is the last frame of an exec stream.
type execExit struct {
	Code     int  `json:"code"`
	Signal   int  `json:"signal"`
	TimedOut bool `json:"timed_out"`
	OOM      bool `json:"oom"`
}

func newContainerExecCommand() *cobra.Command {
	var req execRequest
	var stdin bool
	var timeout time.Duration
	cmd := apiCommand(&cobra.Command{
		Use:   "exec [flags] ID COMMAND [ARG]...",
		Short: "Run a command in a container",
		Long: `Run a command in a container. What follows the ID is the command with its own flags, with or without a -- before
it; the flags of exec stand before the ID. Standard output, standard error and the exit code are those of the command:
128 and the signal's number if a signal ended it, 124 if the time limit did, 137 if it ran out of memory, 127 if it
could not be started, 130 if you interrupted it.`,
		Example: "  airlock container exec container_0123 ls -l /workspace\n  airlock container exec -i container_0123 wc -l < data.csv",
		Args: func(_ *cobra.Command, args []string) error {
			if len(commandOf(args)) == 0 {
				return errors.New("a container and a command are needed")
			}
			return nil
		},
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		req.Argv, req.Timeout = commandOf(args), timeout.Seconds()
		if stdin {
			b, err := io.ReadAll(interruptible(cmd.Context(), cmd.InOrStdin()))
			if err != nil {
				return err
			}
			req.Stdin = base64.StdEncoding.EncodeToString(b)
		}
		exit, err := c.exec(ctx, args[0], req, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if refusal, ok := errors.AsType[*apiError](err); ok && refusal.Code == "command_not_started" {
			return exitError{code: 127, err: err}
		}
		if err != nil {
			return err
		}
		return exit.asError(timeout)
	})
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.BoolVarP(&stdin, "stdin", "i", false, "pass standard input to the command")
	f.StringVar(&req.Cwd, "cwd", "", "folder to run in (default: /workspace)")
	f.StringToStringVar(&req.Env, "env", nil, "environment of the command, NAME=VALUE")
	durationVar(f, &timeout, "timeout", "time limit (default: the server's)")
	return cmd
}

// commandOf is what follows the container in the arguments, without a -- that separates the two.
func commandOf(args []string) []string {
	if len(args) < 2 {
		return nil
	}
	if args[1] == "--" {
		return args[2:]
	}
	return args[1:]
}

// asError carries the command's exit code out of the program, with a word on why where the code alone does not say it.
func (e execExit) asError(limit time.Duration) error {
	switch {
	case e.TimedOut && limit > 0:
		return exitError{code: 124, err: fmt.Errorf("the command passed its time limit of %s", limit)}
	case e.TimedOut:
		return exitError{code: 124, err: errors.New("the command passed the server's time limit")}
	case e.OOM:
		return exitError{code: 137, err: errors.New("the command ran out of memory")}
	case e.Signal != 0:
		return exitError{code: 128 + e.Signal}
	case e.Code != 0:
		return exitError{code: e.Code}
	}
	return nil
}

// exec runs a command and copies its output as it comes. A stream that ends without an exit frame is an error: no exit
// code is made up.
func (c *client) exec(ctx context.Context, id string, body execRequest, stdout, stderr io.Writer) (exit execExit, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return exit, err
	}
	resp, err := c.send(ctx, http.MethodPost, containerPath(id)+"/exec", "application/json", strings.NewReader(string(b)))
	if err != nil {
		return exit, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	frames := claude.NewFrameReader(resp.Body)
	for {
		frame, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return exit, errors.New("the connection ended before the command did; its exit code is not known")
		}
		if err != nil {
			return exit, err
		}
		switch frame.Event {
		case "out":
			if err := writeOut(frame.Data, stdout, stderr); err != nil {
				return exit, err
			}
		case "exit":
			return exit, json.Unmarshal(frame.Data, &exit)
		case "error":
			return exit, parseError(resp.StatusCode, frame.Data)
		}
	}
}

func writeOut(data []byte, stdout, stderr io.Writer) error {
	var out struct {
		Stream string `json:"stream"`
		Data   []byte `json:"data_base64"`
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return err
	}
	w := stdout
	if out.Stream == "stderr" {
		w = stderr
	}
	_, err := w.Write(out.Data)
	return err
}
