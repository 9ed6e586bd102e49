// Package airlock lets a Go application use the gateway of an Airlock server, or one of the same shape, with the
// official Anthropic SDK.
//
// A gateway serves many apps and users from one upstream key. Each request says who asks (a JWT) and which app it comes
// from (an app identity token); what it makes belongs to that user alone ([ScopeUser]) or to the whole app ([ScopeApp]).
// [NewClient] gives the SDK's own client with those headers set, [NewFiles] uploads and downloads, [Run] carries a
// conversation through all of its steps. The rest are small pieces for applications that write the loop themselves.
//
//	env, err := airlock.EnvFromOS()
//	files, err := airlock.NewFiles(env, airlock.WithAuthToken(userJWT))
//	client, err := airlock.NewClient(env, airlock.WithAuthToken(userJWT))
//	in, err := files.Upload(ctx, document, airlock.UploadOptions{Filename: "report.docx"})
//	steps, err := airlock.Run(ctx, client, anthropic.MessageNewParams{
//		Model: "claude-sonnet-5", MaxTokens: 64000,
//		Tools:    []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
//		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt), airlock.Upload(in.ID))},
//	}, nil, airlock.RunOptions{})
//	for _, id := range airlock.CollectOutputs(steps...).FileIDs {
//		response, err := files.Download(ctx, id)
//	}
//
// The package imports the SDK and the standard library. It keeps no state, reads no ANTHROPIC_* variable, and its
// clients may be used by many goroutines.
package airlock
