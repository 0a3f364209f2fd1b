// Package awsmsg is what broker/sqsbroker and broker/snsbroker share: how a
// message becomes a body and attributes and back, how destinations are named
// by templates, how messages are cut into requests whose entries each get
// their own answer, and which class an error of AWS has (of DynamoDB, too).
package awsmsg
