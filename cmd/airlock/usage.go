package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a mistake in how a command was called: exit code 2 and the line that shows the right form.
func usageError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() {
		return exitError{code: 2, err: fmt.Errorf("%w\nrun '%s --help' for the usage", err, cmd.CommandPath())}
	}
	return exitError{code: 2, err: fmt.Errorf("%w\nusage: %s\nrun '%s --help' for more", err, cmd.UseLine(), cmd.CommandPath())}
}

// flagError says in words what is wrong with a flag; the parsers of the library speak of their functions.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return unknownCommand(cmd, cmd.Flags().Arg(0)) // the flag is one of the command that was meant
	}
	if no, ok := errors.AsType[*pflag.NotExistError](err); ok {
		names, _ := placeholders(cmd)
		for _, p := range names {
			if strings.EqualFold(p, no.GetSpecifiedName()) {
				return usageError(cmd, fmt.Errorf("there is no flag --%s: %s is an argument", no.GetSpecifiedName(), p))
			}
		}
	}
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return usageError(cmd, err)
	}
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint64": "a whole number", "float64": "a number",
		"duration": "a duration like 30s, 10m or 30d", "bool": "true or false",
	}[bad.GetFlag().Value.Type()]
	if want == "" {
		return usageError(cmd, err)
	}
	return usageError(cmd, fmt.Errorf("--%s: %q is not %s", bad.GetFlag().Name, bad.GetValue(), want))
}

// otherNames are what people type for commands that every group names alike.
var otherNames = map[string][]string{"rm": {"remove", "delete"}, "list": {"ls"}}

// checkUsage makes wrong usage of a command and of those below it exit code 2, before anything is done.
func checkUsage(c *cobra.Command) {
	switch {
	case c.DisableFlagParsing: // a command that is not there on this system takes everything
	case c.HasSubCommands():
		c.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		}
		c.Run, c.RunE = nil, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	default:
		check := c.Args
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := wrongUsage(cmd, args, check); err != nil {
				return usageError(cmd, err)
			}
			return nil
		}
	}
	if c.HasParent() && c.Aliases == nil {
		c.Aliases = otherNames[c.Name()]
	}
	for _, sub := range c.Commands() {
		checkUsage(sub)
	}
}

// unknownCommand names the commands that a group has.
func unknownCommand(group *cobra.Command, word string) error {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usageError(group, fmt.Errorf("unknown command %q for %q; there are: %s", word, group.CommandPath(), strings.Join(names, ", ")))
}

// helpCommand is the library's, which takes every word.
func helpCommand(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return
	}
	help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
		about, rest, err := root.Find(args)
		switch {
		case err != nil:
			return usageError(root, err)
		case len(rest) > 0 && about.HasSubCommands():
			return unknownCommand(about, rest[0])
		case len(rest) > 0:
			return usageError(about, fmt.Errorf("%q has no commands, as %q would be", about.CommandPath(), rest[0]))
		}
		about.InitDefaultHelpFlag()
		return about.Help()
	}
}

func wrongUsage(cmd *cobra.Command, args []string, check cobra.PositionalArgs) error {
	if check != nil {
		if err := check(cmd, args); err != nil {
			return argsError(cmd, args, err)
		}
		names, _ := placeholders(cmd)
		for i, a := range args {
			if a == "" && i < len(names) {
				return fmt.Errorf("%s is empty", names[i])
			}
		}
	}
	for _, look := range []func(*cobra.Command) error{emptyFlag, missingFlag, cobraGroups} {
		if err := look(cmd); err != nil {
			return err
		}
	}
	return nil
}

var placeholder = regexp.MustCompile(`^[A-Z][A-Z|-]*(\.\.\.)?$`)

// placeholders are the names of a command's arguments in its usage line; more is whether the last may be repeated, or others follow.
func placeholders(cmd *cobra.Command) (names []string, more bool) {
	for _, w := range strings.Fields(cmd.Use)[1:] {
		switch {
		case w == "[flags]":
		case w == "[ARG]...":
			more = true
		case placeholder.MatchString(w):
			name, many := strings.CutSuffix(w, "...")
			names, more = append(names, name), more || many
		default:
			return names, more
		}
	}
	return names, more
}

// argsError names the argument that is missing, or what the one too many was meant to be; a command's own words stay.
func argsError(cmd *cobra.Command, args []string, err error) error {
	text := err.Error()
	if !strings.HasPrefix(text, "accepts ") && !strings.HasPrefix(text, "requires ") && !strings.HasPrefix(text, "unknown command ") {
		return err
	}
	names, more := placeholders(cmd)
	if len(args) < len(names) {
		return fmt.Errorf("expected %s", strings.Join(names[len(args):], " and "))
	}
	if more || len(args) == len(names) {
		return err
	}
	word := args[len(names)]
	var meant []string
	for _, name := range []string{"user", "app"} {
		if f := cmd.Flags().Lookup(name); f != nil && !f.Changed {
			meant = append(meant, "--"+name+" "+word)
		}
	}
	if len(meant) == 0 {
		return fmt.Errorf("unexpected argument %q", word)
	}
	return fmt.Errorf("unexpected argument %q; did you mean %s?", word, strings.Join(meant, " or "))
}

// mayBeEmpty marks a flag of a client command whose empty value means something.
const mayBeEmpty = "airlock_may_be_empty"

// emptyFlag refuses what an unset variable of a shell leaves: --app "" must not become all apps, nor --user "" the app, nor
// --key "" the admin key of the data folder.
func emptyFlag(cmd *cobra.Command) error {
	if cmd.Flags().Lookup("key") == nil {
		return nil // no client command: nothing here goes to a server
	}
	var empty error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		text, kind := f.Value.String(), f.Value.Type()
		if (kind == "string" && text == "" || kind == "stringSlice" && text == "[]") && f.Annotations[mayBeEmpty] == nil && empty == nil {
			empty = fmt.Errorf("--%s is empty", f.Name)
		}
	})
	return empty
}

// allowEmpty marks flags whose empty value means something.
func allowEmpty(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		_ = cmd.Flags().SetAnnotation(name, mayBeEmpty, []string{"true"}) // the flag exists
	}
}

// The library's marks of flags that go together.
const (
	needOne  = "cobra_annotation_one_required"
	needNone = "cobra_annotation_mutually_exclusive"
)

// missingFlag says of which flags one is needed, and which do not go together.
func missingFlag(cmd *cobra.Command) error {
	var missing []string
	var group error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && !f.Changed {
			missing = append(missing, "--"+f.Name)
		}
		for _, g := range f.Annotations[needOne] {
			if names := strings.Fields(g); group == nil && !slices.ContainsFunc(names, cmd.Flags().Changed) {
				group = fmt.Errorf("--%s is needed", strings.Join(names, " or --"))
			}
		}
		for _, g := range f.Annotations[needNone] {
			names := slices.DeleteFunc(strings.Fields(g), func(n string) bool { return !cmd.Flags().Changed(n) })
			if group == nil && len(names) > 1 {
				group = fmt.Errorf("--%s do not go together", strings.Join(names, " and --"))
			}
		}
	})
	switch len(missing) {
	case 0:
		return group
	case 1:
		return fmt.Errorf("%s is needed", missing[0])
	}
	return fmt.Errorf("%s are needed", strings.Join(missing, " and "))
}

// cobraGroups is the library's own look at the same, should it name its marks otherwise one day.
func cobraGroups(cmd *cobra.Command) error {
	return errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups())
}
