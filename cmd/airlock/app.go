package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func newAppCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "app",
		Short:   "Manage the applications that may use this server",
		Example: "  airlock app create invoices\n  airlock app list",
	}
	cmd.AddCommand(newAppCreateCommand(), newAppListCommand(), newAppGetCommand(), newAppDisableCommand())
	return cmd
}

func appLine(m map[string]any) string {
	line := cell(m["id"]) + "  " + cell(m["name"])
	if m["disabled_at"] != nil {
		line += "  disabled since " + cell(m["disabled_at"])
	}
	return line
}

// adminCommand is a command of one admin request that answers one object.
func adminCommand(cmd *cobra.Command, show func(map[string]any) string,
	request func(args []string) (method, path string, body any),
) *cobra.Command {
	var conn connection
	var asJSON bool
	conn.addFlags(cmd, false)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := conn.dialAdmin()
		if err != nil {
			return err
		}
		method, path, body := request(args)
		var raw json.RawMessage
		if err := c.call(cmd.Context(), method, path, body, &raw); err != nil {
			return err
		}
		return printOne(cmd, asJSON, raw, show)
	}
	return cmd
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
	return adminCommand(&cobra.Command{
		Use:     "create NAME",
		Short:   "Create an app",
		Example: "  airlock app create invoices --json",
		Args:    cobra.ExactArgs(1),
	}, appLine, func(args []string) (string, string, any) {
		return http.MethodPost, "/airlock/v1/apps", map[string]any{"name": args[0]}
	})
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
	}, appLine, func(args []string) (string, string, any) {
		return http.MethodGet, appPath(args[0]), nil
	})
}

func newAppDisableCommand() *cobra.Command {
	var enable bool
	cmd := adminCommand(&cobra.Command{
		Use:     "disable APP",
		Short:   "Shut an app off: its keys are refused from the next request on",
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
