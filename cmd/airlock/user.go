package main

import (
	"context"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func newUserCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "See, block and delete the users of apps",
		Long: "See, block and delete the users of apps. A USER is the subject of its tokens; of another issuer than this server, the issuer's id,\n" +
			"a '/' and the subject. airlock/NAME is a user of this server's own tokens, whatever characters NAME has. The id that the list\n" +
			"shows names a user of one app.",
		Example: "  airlock user list --app invoices\n  airlock user block u1 --app invoices",
	}
	cmd.AddCommand(newUserListCommand(), newUserGetCommand(), newUserBlockCommand(), newUserDeleteCommand())
	return cmd
}

// withQuery adds the parameters that are not empty.
func withQuery(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

func newUserListCommand() *cobra.Command {
	var app, user string
	var blocked bool
	cmd := adminList(&cobra.Command{
		Use:     "list",
		Short:   "List the users that were seen, once for each app",
		Example: "  airlock user list --app invoices\n  airlock user list --blocked",
	}, func() string {
		only := ""
		if blocked {
			only = "true"
		}
		return withQuery("/airlock/v1/users", "app", app, "user", user, "blocked", only)
	}, nil, "id", "user", "app_id", "first_seen_at", "blocked_at")
	cmd.Flags().StringVar(&app, "app", "", "only the users of this app")
	cmd.Flags().StringVar(&user, "user", "", "only this user, in every app")
	cmd.Flags().BoolVar(&blocked, "blocked", false, "only those who are blocked")
	return cmd
}

func userLine(m map[string]any) string {
	line := cell(m["id"]) + "  " + cell(m["user"])
	if m["app_id"] != nil {
		line += "  " + cell(m["app_id"])
	}
	if m["blocked_at"] != nil {
		line += "  blocked since " + cell(m["blocked_at"])
	}
	return line
}

func newUserGetCommand() *cobra.Command {
	var app string
	cmd := adminCall{
		show: userLine, note: func(ctx context.Context, c *client, m map[string]any) (string, error) { return c.stillBlocked(ctx, m) },
		request: func(args []string) (string, string, any) {
			return http.MethodGet, withQuery(userPath(args[0]), "app", app), nil
		},
		failed: func(ctx context.Context, c *client, args []string, err error) error {
			return c.knownElsewhere(ctx, args[0], app, err)
		},
	}.command(&cobra.Command{
		Use:     "get USER",
		Short:   "Show a user of an app",
		Example: "  airlock user get u1 --app invoices",
		Args:    cobra.ExactArgs(1),
	})
	cmd.Flags().StringVar(&app, "app", "", "the app; none is the user's block in all apps")
	return cmd
}

func newUserBlockCommand() *cobra.Command {
	var app string
	var undo bool
	cmd := adminCall{
		show: userLine, note: blockNote,
		request: func(args []string) (string, string, any) {
			body := map[string]any{"blocked": !undo}
			if app != "" {
				body["app"] = app
			}
			return http.MethodPatch, userPath(args[0]), body
		},
		failed: func(ctx context.Context, c *client, args []string, err error) error {
			return c.knownElsewhere(ctx, args[0], app, err)
		},
	}.command(&cobra.Command{
		Use:   "block USER",
		Short: "Refuse a user's tokens from the next request on, in one app or in all",
		Long: "Refuse a user's tokens from the next request on, in one app or in all, also of a user who was not seen yet. The two are blocks of\n" +
			"their own: --undo takes back the one of this app, or without --app the one in all apps, and says what is still blocked.",
		Example: "  airlock user block u1 --app invoices\n  airlock user block okta/00u1 --undo",
		Args:    cobra.ExactArgs(1),
	})
	cmd.Flags().StringVar(&app, "app", "", "in this app only")
	cmd.Flags().BoolVar(&undo, "undo", false, "let the user in again, where it was blocked the same way")
	return cmd
}

// blockNote says whom a block may have missed, or what is left of an undone one.
func blockNote(ctx context.Context, c *client, m map[string]any) (string, error) {
	if m["blocked_at"] == nil {
		return c.stillBlocked(ctx, m)
	}
	user, _ := m["user"].(string)
	if app, ok := m["app_id"].(string); ok {
		return c.unseen(ctx, user, &app)
	}
	return c.unseen(ctx, user, nil)
}

func newUserDeleteCommand() *cobra.Command {
	var app string
	cmd := adminCommand(&cobra.Command{
		Use:   "delete USER --app APP",
		Short: "Block a user of an app and delete the files and containers that are the user's alone",
		Long: "Block a user of an app for good and delete the files and containers that are the user's alone. What is open to the whole app\n" +
			"stays, as do the audit and the records of use. Running requests are cut off, or run to their end first (users.on_delete in\n" +
			"'airlock serve --print-config'). 'airlock user block --undo' lets the user in again, with nothing.",
		Example: "  airlock user delete okta/00u1 --app invoices",
		Args:    cobra.ExactArgs(1),
	}, func(m map[string]any) string {
		line := "deleted " + cell(m["user"]) + "  files " + cell(m["files"]) + "  containers " + cell(m["containers"])
		if m["finished"] != true {
			line += "  requests of the user still run: what they make is deleted when they end"
		}
		return line
	}, func(args []string) (string, string, any) {
		return http.MethodDelete, withQuery(userPath(args[0]), "app", app), nil
	})
	cmd.Flags().StringVar(&app, "app", "", "the app whose user it is; not needed with the id that the list shows")
	return cmd
}
