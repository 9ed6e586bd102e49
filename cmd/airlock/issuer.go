package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"
)

func newIssuerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "issuer",
		Short: "Manage whose tokens are taken beside this server's own",
		Example: "  airlock issuer add okta --issuer https://example.okta.com --alg RS256 --jwks https://example.okta.com/oauth2/v1/keys\n" +
			"  airlock issuer list",
	}
	cmd.AddCommand(newIssuerAddCommand(), newIssuerListCommand(), newIssuerRemoveCommand())
	return cmd
}

func issuerLine(m map[string]any) string { return cell(m["id"]) + "  " + cell(m["issuer"]) }

// issuerNote passes on that the server could not fetch the keys.
func issuerNote(_ context.Context, _ *client, m map[string]any) (string, error) {
	if why, ok := m["jwks_error"].(string); ok {
		return "no token of it is taken yet: its keys could not be fetched: " + why, nil
	}
	return "", nil
}

func newIssuerAddCommand() *cobra.Command {
	var issuer, alg, jwks, keyFile string
	var audience, azp []string
	var binds bool
	var key []byte
	cmd := adminCall{show: issuerLine, note: issuerNote, request: func(args []string) (string, string, any) {
		body := map[string]any{"id": args[0], "issuer": issuer, "alg": alg, "binds_apps": binds}
		for name, v := range map[string]string{"jwks": jwks, "key": string(key)} {
			if v != "" {
				body[name] = v
			}
		}
		for name, v := range map[string][]string{"audience": audience, "azp_patterns": azp} {
			if len(v) > 0 {
				body[name] = v
			}
		}
		return http.MethodPost, "/airlock/v1/issuers", body
	}}.command(&cobra.Command{
		Use:   "add ID --issuer ISS --alg ALG (--jwks URL | --public-key FILE)",
		Short: "Take the tokens of an issuer, or change how they are verified",
		Long: "Take the tokens of an issuer, or change how they are verified. ID is part of who owns what, and stays with the issuer for\n" +
			"good. An issuer signs with one algorithm.",
		Example: "  airlock issuer add okta --issuer https://example.okta.com --alg RS256 --jwks https://example.okta.com/oauth2/v1/keys",
		Args:    cobra.ExactArgs(1),
	})
	f := cmd.Flags()
	f.StringVar(&issuer, "issuer", "", "the claim iss of its tokens, exactly")
	f.StringVar(&alg, "alg", "", "ES256, RS256 or EdDSA")
	f.StringVar(&jwks, "jwks", "", "address of its keys")
	f.StringVar(&keyFile, "public-key", "", "file with its public key as PEM")
	f.StringSliceVar(&audience, "audience", nil, "one of these must be in the claim aud")
	f.StringSliceVar(&azp, "azp", nil, "patterns that the claim azp must match where there is one")
	f.BoolVar(&binds, "binds-apps", false, "the claim app_id of its tokens stands for the app")
	for _, name := range []string{"issuer", "alg"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	cmd.MarkFlagsMutuallyExclusive("jwks", "public-key")
	cmd.MarkFlagsOneRequired("jwks", "public-key")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if keyFile != "" {
			if key, err = os.ReadFile(keyFile); err != nil {
				return fmt.Errorf("--public-key: %w", err)
			}
		}
		return run(cmd, args)
	}
	return cmd
}

func newIssuerListCommand() *cobra.Command {
	return adminList(&cobra.Command{
		Use:     "list",
		Short:   "List the issuers whose tokens are taken",
		Example: "  airlock issuer list --json",
	}, func() string { return "/airlock/v1/issuers" }, nil, "id", "issuer", "alg", "audience", "azp_patterns", "binds_apps", "jwks")
}

func newIssuerRemoveCommand() *cobra.Command {
	return adminCommand(&cobra.Command{
		Use:     "rm ID",
		Short:   "Take no token of an issuer any more; what its users own stays",
		Example: "  airlock issuer rm okta",
		Args:    cobra.ExactArgs(1),
	}, func(m map[string]any) string { return "removed " + cell(m["id"]) }, func(args []string) (string, string, any) {
		return http.MethodDelete, "/airlock/v1/issuers/" + url.PathEscape(args[0]), nil
	})
}
