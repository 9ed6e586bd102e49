package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func newTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Make and revoke the tokens of users",
		Example: "  airlock token mint --app invoices --user u1 --ttl 1h\n  airlock token mint --app invoices --owner",
	}
	cmd.AddCommand(newTokenMintCommand(), newTokenExchangeCommand(), newTokenRevokeCommand())
	return cmd
}

func tokenLine(m map[string]any) string { return cell(m["token"]) }

func newTokenMintCommand() *cobra.Command {
	var app, user string
	var owner bool
	var ttl time.Duration
	cmd := adminCommand(&cobra.Command{
		Use:   "mint --app APP (--user USER | --owner)",
		Short: "Make a token of a user of an app, or of the app's owner; it is shown this once",
		Long: "Make a token of a user of an app, or of the app's owner. Tokens are not kept: note the id that --json shows, if you may\n" +
			"want to revoke it. An owner's token lives ten years unless --ttl says otherwise.",
		Example: "  airlock token mint --app invoices --user u1 --ttl 1h --json",
		Args:    cobra.NoArgs,
	}, tokenLine, func([]string) (string, string, any) {
		body := map[string]any{"app": app}
		if user != "" {
			body["user"] = user
		}
		if owner {
			body["owner"] = true
		}
		if ttl > 0 {
			body["ttl_seconds"] = int64(ttl / time.Second)
		}
		return http.MethodPost, "/airlock/v1/tokens", body
	})
	f := cmd.Flags()
	f.StringVar(&app, "app", "", "id or name of the app that the token is for")
	_ = cmd.MarkFlagRequired("app") // the flag exists
	f.StringVar(&user, "user", "", "the user, by whatever name the application gives it")
	f.BoolVar(&owner, "owner", false, "a token of the app's owner, as the application itself uses it")
	durationVar(f, &ttl, "ttl", "how long the token lives (default 1h, of an owner ten years)")
	cmd.MarkFlagsMutuallyExclusive("user", "owner")
	cmd.MarkFlagsOneRequired("user", "owner")
	return notNegative(cmd, &ttl)
}

// notNegative refuses a --ttl below zero, where zero stands for the default.
func notNegative(cmd *cobra.Command, ttl *time.Duration) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *ttl < 0 || (*ttl < time.Second && cmd.Flags().Changed("ttl")) {
			return usageError(cmd, errors.New("--ttl: expected a second or more"))
		}
		return run(cmd, args)
	}
	return cmd
}

func newTokenExchangeCommand() *cobra.Command {
	var app string
	var ttl time.Duration
	cmd := adminCommand(&cobra.Command{
		Use:     "exchange TOKEN --app APP",
		Short:   "Turn a token of a configured issuer into one of this server's, for the same user in one app",
		Example: "  airlock token exchange eyJ... --app invoices",
		Args:    cobra.ExactArgs(1),
	}, tokenLine, func(args []string) (string, string, any) {
		body := map[string]any{"app": app, "token": args[0]}
		if ttl > 0 {
			body["ttl_seconds"] = int64(ttl / time.Second)
		}
		return http.MethodPost, "/airlock/v1/tokens/exchange", body
	})
	cmd.Flags().StringVar(&app, "app", "", "id or name of the app that the token is for")
	_ = cmd.MarkFlagRequired("app") // the flag exists
	durationVar(cmd.Flags(), &ttl, "ttl", "how long the token lives, at most 1h (default 1h)")
	return notNegative(cmd, &ttl)
}

func newTokenRevokeCommand() *cobra.Command {
	return adminCommand(&cobra.Command{
		Use:     "revoke TOKEN|ID",
		Short:   "Refuse a token from the next request on, given itself or the id that 'token mint --json' showed",
		Example: "  airlock token revoke tok_0123",
		Args:    cobra.ExactArgs(1),
	}, revokedLine, func(args []string) (string, string, any) {
		return http.MethodPost, "/airlock/v1/tokens/revoke", map[string]any{"token": args[0]}
	})
}

// revokedLine says what is known of a token that was revoked: of one given by its id nothing but that.
func revokedLine(m map[string]any) string {
	id, _ := m["id"].(string)
	user, known := m["user"].(string)
	switch {
	case !known:
		return "revoked " + cell(id) + "; ids are not kept, so it is not known here whether there was such a token"
	case id == "":
		return "revoked the token of " + cell(user)
	}
	return "revoked " + cell(id) + " of " + cell(user)
}
