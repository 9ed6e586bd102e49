package main

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"
)

func newLimitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit",
		Short: "Set how much apps and their users may ask for",
		Long: "Set how much apps and their users may ask for. What is set for nobody else is a setting of the server (limits in\n" +
			"'airlock serve --print-config').",
		Example: "  airlock limit set --app invoices --requests 600\n  airlock limit list",
	}
	cmd.AddCommand(newLimitSetCommand(), newLimitListCommand(), newLimitRemoveCommand())
	return cmd
}

func limitLine(m map[string]any) string {
	who := cell(m["app_id"])
	if m["user"] != nil {
		who += " " + cell(m["user"])
	}
	return who + "  messages in flight " + cell(m["messages_in_flight"]) + "  requests a minute " + cell(m["requests_per_minute"])
}

// limitNote says so if the limit is one of a user who never came.
func limitNote(ctx context.Context, c *client, m map[string]any) (string, error) {
	user, ok := m["user"].(string)
	app, inApp := m["app_id"].(string)
	if !ok || !inApp {
		return "", nil
	}
	return c.unseen(ctx, user, &app)
}

func removedLimit(m map[string]any) string {
	if m["existed"] == false {
		return "there was none"
	}
	return "removed"
}

func newLimitSetCommand() *cobra.Command {
	var app, user string
	var messages, requests int
	var flags *cobra.Command
	cmd := adminCall{show: limitLine, note: limitNote, request: func([]string) (string, string, any) {
		body := map[string]any{"app": app}
		if user != "" {
			body["user"] = user
		}
		if flags.Flags().Changed("messages") {
			body["messages_in_flight"] = messages
		}
		if flags.Flags().Changed("requests") {
			body["requests_per_minute"] = requests
		}
		return http.MethodPut, "/airlock/v1/limits", body
	}}.command(&cobra.Command{
		Use:     "set --app APP",
		Short:   "Set the limits of an app, or of a user in it; what is not given is the server's default",
		Example: "  airlock limit set --app invoices --user u1 --messages 2",
		Args:    cobra.NoArgs,
	})
	flags = cmd
	f := cmd.Flags()
	f.StringVar(&app, "app", "", "id or name of the app")
	_ = cmd.MarkFlagRequired("app") // the flag exists
	f.StringVar(&user, "user", "", "a user of the app; none is the app as a whole")
	f.IntVar(&messages, "messages", 0, "messages in flight at once")
	f.IntVar(&requests, "requests", 0, "requests in a minute")
	cmd.MarkFlagsOneRequired("messages", "requests")
	return cmd
}

func newLimitListCommand() *cobra.Command {
	var app string
	cmd := adminList(&cobra.Command{
		Use:     "list",
		Short:   "List the limits that are set",
		Example: "  airlock limit list --app invoices",
	}, func() string { return withQuery("/airlock/v1/limits", "app", app) }, nil, "app_id", "user", "messages_in_flight", "requests_per_minute")
	cmd.Flags().StringVar(&app, "app", "", "only those of this app and its users")
	return cmd
}

func newLimitRemoveCommand() *cobra.Command {
	var app, user string
	cmd := adminCommand(&cobra.Command{
		Use:     "rm --app APP",
		Short:   "Give an app, or a user in it, the server's defaults again",
		Example: "  airlock limit rm --app invoices --user u1",
		Args:    cobra.NoArgs,
	}, removedLimit, func([]string) (string, string, any) {
		return http.MethodDelete, withQuery("/airlock/v1/limits", "app", app, "user", user), nil
	})
	cmd.Flags().StringVar(&app, "app", "", "id or name of the app")
	_ = cmd.MarkFlagRequired("app") // the flag exists
	cmd.Flags().StringVar(&user, "user", "", "a user of the app; none is the app as a whole")
	return cmd
}
