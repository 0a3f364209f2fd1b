// Package cloud is what the shop's services share about AWS: the SDK's own
// configuration with readable complaints, and topics, queues and tables that
// are safe to create again. Nothing here knows endpoints or keys: the SDK's environment
// (AWS_ENDPOINT_URL, AWS_REGION, its credential chain) decides.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
)

// Load reads the SDK's environment and says at once what is missing in it.
func Load(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return aws.Config{}, fmt.Errorf("read the AWS settings: %w", err)
	}
	if cfg.Region == "" {
		return aws.Config{}, errors.New("no AWS region is set: set AWS_REGION, for example AWS_REGION=eu-central-1 (an emulator takes any)")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return aws.Config{}, fmt.Errorf("no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "+
			"(an emulator takes any), log in with `aws sso login`, or give the instance or task a role: %w", err)
	}
	return cfg, nil
}

// Hint says how to mend an error of an AWS call; empty if it does not know.
func Hint(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		switch api.ErrorCode() {
		case "ResourceNotFoundException", "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NotFound":
			return "create the topic, queues and tables with `orders provision`"
		case "ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException", "InvalidClientTokenId",
			"SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken":
			return "the AWS credentials are not valid (any more): renew them"
		case "AccessDenied", "AccessDeniedException", "AuthorizationError":
			return "the AWS identity lacks a right that the message names: allow it in its policy"
		}
		return ""
	}
	if Unreachable(err) {
		if endpoint := os.Getenv("AWS_ENDPOINT_URL"); endpoint != "" {
			return "AWS_ENDPOINT_URL is " + endpoint + ": is the emulator running there? Unset it to use AWS itself"
		}
		return "check the network, and that the region in AWS_REGION exists"
	}
	return ""
}

// Unreachable reports whether err means that no connection was to be had. An
// address that this program cannot listen on is something else.
func Unreachable(err error) bool {
	if op, network := errors.AsType[*net.OpError](err); network {
		return op.Op != "listen"
	}
	_, dns := errors.AsType[*net.DNSError](err)
	return dns
}
