package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newAppCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "app",
		Short:   "Manage the applications that may use this server",
		Example: "  airlock app create invoices\n  airlock app list",
	}
	cmd.AddCommand(newAppCreateCommand(), newAppListCommand(), newAppGetCommand(), newAppSetCommand(), newAppDisableCommand(),
		newAppEnvCommand(), newAppRotateIdentityCommand())
	return cmd
}

func appLine(m map[string]any) string {
	line := cell(m["id"]) + "  " + cell(m["name"])
	if m["disabled_at"] != nil {
		line += "  disabled since " + cell(m["disabled_at"])
	}
	return line
}

// appSettings is appLine with what is set.
func appSettings(m map[string]any) string {
	models := cell(m["allowed_models"])
	if models == "" {
		models = "all"
	}
	binding := "not required"
	if m["require_token_app_binding"] == true {
		binding = "required"
	}
	return fmt.Sprintf("%s  owner %s  origin %s  models %s  binding %s", appLine(m), cell(m["owner"]), cell(m["origin"]), models, binding)
}

// adminCommand is a command of one admin request that answers one object.
func adminCommand(cmd *cobra.Command, show func(map[string]any) string,
	request func(args []string) (method, path string, body any),
) *cobra.Command {
	return adminCall{show: show, request: request}.command(cmd)
}

// adminCall is adminCommand with more to say.
type adminCall struct {
	show    func(answer map[string]any) string
	request func(args []string) (method, path string, body any)
	// note gives what is said on standard error beside the answer, "" = nothing; nil is none.
	note func(ctx context.Context, c *client, answer map[string]any) (string, error)
	// failed gives an error more words; nil leaves it.
	failed func(ctx context.Context, c *client, args []string, err error) error
}

func (a adminCall) command(cmd *cobra.Command) *cobra.Command {
	var conn connection
	var asJSON bool
	conn.addFlags(cmd, false)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := conn.dialAdmin()
		if err != nil {
			return err
		}
		method, path, body := a.request(args)
		var raw json.RawMessage
		if err := c.call(cmd.Context(), method, path, body, &raw); err != nil {
			if e, ok := errors.AsType[*apiError](err); ok {
				e.Message = inFlags(e.Message)
			}
			if a.failed != nil {
				err = a.failed(cmd.Context(), c, args, err)
			}
			return err
		}
		return errors.Join(printOne(cmd, asJSON, raw, a.show), a.say(cmd, c, raw))
	}
	return cmd
}

// say prints the note. The request was done: that a look at more failed is no failure of the command.
func (a adminCall) say(cmd *cobra.Command, c *client, raw json.RawMessage) error {
	if a.note == nil {
		return nil
	}
	answer, err := fields(raw)
	if err != nil {
		return err
	}
	text, err := a.note(cmd.Context(), c, answer)
	if err != nil {
		text = strings.TrimSpace(text + " (more could not be looked up: " + err.Error() + ")")
	}
	if text != "" {
		newNotes(cmd).line("note: %s", oneLine(text))
	}
	return nil
}

// adminList is a command that prints those elements of a list of an admin route that show takes; nil takes all.
func adminList(cmd *cobra.Command, path func() string, show func(json.RawMessage) bool, columns ...string) *cobra.Command {
	var conn connection
	var asJSON bool
	conn.addFlags(cmd, false)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := conn.dialAdmin()
		if err != nil {
			return err
		}
		var rows []json.RawMessage
		err = c.list(cmd.Context(), path(), func(raw json.RawMessage) error {
			if show == nil || show(raw) {
				rows = append(rows, raw)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return printList(cmd, asJSON, rows, columns...)
	}
	return cmd
}

func newAppCreateCommand() *cobra.Command {
	var owner string
	cmd := adminCommand(&cobra.Command{
		Use:     "create NAME",
		Short:   "Create an app",
		Example: "  airlock app create invoices --json",
		Args:    cobra.ExactArgs(1),
	}, appLine, func(args []string) (string, string, any) {
		body := map[string]any{"name": args[0]}
		if owner != "" {
			body["owner"] = owner
		}
		return http.MethodPost, "/airlock/v1/apps", body
	})
	cmd.Flags().StringVar(&owner, "owner", "", "the person who owns it, for good: an issuer's id, '/' and the subject (default: airlock/owner)")
	return cmd
}

func newAppSetCommand() *cobra.Command {
	var origin string
	var models []string
	var require bool
	var flags *cobra.Command
	cmd := adminCommand(&cobra.Command{
		Use:     "set APP",
		Short:   "Change the settings of an app",
		Example: "  airlock app set invoices --models 'claude-*' --origin https://invoices.example.com",
		Args:    cobra.ExactArgs(1),
	}, appSettings, func(args []string) (string, string, any) {
		body := map[string]any{}
		given := flags.Flags().Changed
		if given("origin") {
			body["origin"] = origin
		}
		if given("models") {
			if models == nil {
				models = []string{}
			}
			body["allowed_models"] = models
		}
		if given("require-binding") {
			body["require_token_app_binding"] = require
		}
		return http.MethodPatch, appPath(args[0]), body
	})
	flags = cmd
	f := cmd.Flags()
	f.StringVar(&origin, "origin", "", "address of the application, which tokens of other issuers may name in aud or azp")
	f.StringSliceVar(&models, "models", nil, "the models it may use, with '*'; '' is all")
	f.BoolVar(&require, "require-binding", false, "refuse tokens that name neither the app nor its origin")
	cmd.MarkFlagsOneRequired("origin", "models", "require-binding")
	allowEmpty(cmd, "origin", "models")
	return cmd
}

// appVariables are those of app env, in the order in which they are shown.
var appVariables = []string{"API_WORKER_URL", "APP_OWNER_JWT", "DEEPSPACE_APP_ID", "APP_IDENTITY_TOKEN"}

func newAppEnvCommand() *cobra.Command {
	return adminCommand(&cobra.Command{
		Use:   "env APP",
		Short: "Show what an application needs to find this server and to prove itself",
		Long: "Show what an application needs to find this server and to prove itself, as variables of its environment. They are secrets.\n" +
			"Each call makes a new owner token; those made before stay good.",
		Example: "  airlock app env invoices > invoices.env\n  airlock app env invoices --json",
		Args:    cobra.ExactArgs(1),
	}, func(m map[string]any) string {
		lines := make([]string, len(appVariables))
		for i, name := range appVariables {
			lines[i] = name + "=" + cell(m[name])
		}
		return strings.Join(lines, "\n")
	}, func(args []string) (string, string, any) {
		return http.MethodGet, appPath(args[0]) + "/env", nil
	})
}

func newAppRotateIdentityCommand() *cobra.Command {
	var overlap time.Duration
	var flags *cobra.Command
	cmd := adminCommand(&cobra.Command{
		Use:     "rotate-identity APP",
		Short:   "Make a new identity token of an app; the one before is taken for a day more",
		Example: "  airlock app rotate-identity invoices\n  airlock app rotate-identity invoices --overlap 0s",
		Args:    cobra.ExactArgs(1),
	}, func(m map[string]any) string { return "APP_IDENTITY_TOKEN=" + cell(m["APP_IDENTITY_TOKEN"]) },
		func(args []string) (string, string, any) {
			return http.MethodPost, appPath(args[0]) + "/rotate-identity", overlapBody(flags, overlap)
		})
	flags = cmd
	durationVar(cmd.Flags(), &overlap, "overlap", "how long the token before is still taken (default: the server's identity.overlap)")
	return cmd
}

// overlapBody says an overlap if the flag was given: 0 is none, where not to say it is the server's setting.
func overlapBody(cmd *cobra.Command, overlap time.Duration) map[string]any {
	body := map[string]any{}
	if cmd.Flags().Changed("overlap") {
		body["overlap_seconds"] = int64(overlap / time.Second)
	}
	return body
}

func newAppListCommand() *cobra.Command {
	return adminList(&cobra.Command{
		Use:     "list",
		Short:   "List the apps",
		Example: "  airlock app list",
	}, func() string { return "/airlock/v1/apps" }, nil, "id", "name", "created_at", "disabled_at")
}

func newAppGetCommand() *cobra.Command {
	return adminCommand(&cobra.Command{
		Use:     "get APP",
		Short:   "Show one app, by id or name",
		Example: "  airlock app get invoices",
		Args:    cobra.ExactArgs(1),
	}, appSettings, func(args []string) (string, string, any) {
		return http.MethodGet, appPath(args[0]), nil
	})
}

func newAppDisableCommand() *cobra.Command {
	var enable bool
	cmd := adminCommand(&cobra.Command{
		Use:     "disable APP",
		Short:   "Shut an app off: its keys and the tokens of its users are refused from the next request on",
		Example: "  airlock app disable invoices\n  airlock app disable invoices --undo",
		Args:    cobra.ExactArgs(1),
	}, appLine, func(args []string) (string, string, any) {
		return http.MethodPatch, appPath(args[0]), map[string]any{"disabled": !enable}
	})
	cmd.Flags().BoolVar(&enable, "undo", false, "let the app in again")
	return cmd
}

func appPath(idOrName string) string {
	return fmt.Sprintf("/airlock/v1/apps/%s", url.PathEscape(idOrName))
}
