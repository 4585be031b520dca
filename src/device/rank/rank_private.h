/* rank_private.h - what the files of a group of ranks share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_RANK_PRIVATE_H
#define MP_DEVICE_RANK_PRIVATE_H

#include "device/rank/rank_group.h"
#include "device/rank/rank_link.h"

/* ---- rank_meet.c ---- */

/* Connects all ranks, with `links` made and empty. */
mp_status mp__group_meet(mp_group *group);

/* ---- rank_group.c; under the group's lock ---- */

/* Sends whom this rank has a link to, which of rank 0 are all others, the thread's sentence as
 * `word`; to those that do not take it nothing is sent. */
void mp__group_tell(mp_group *group, mp_link_word word);

/* Breaks the group with the thread's sentence, about rank `about`, or about none for -1.
 * Returns DEVICE. */
mp_status mp__group_end(mp_group *group, int about);

/* The same for what mp__link_receive gave when it failed: an end has a whole sentence. */
mp_status mp__group_lose(mp_group *group, mp_status failed, int about);

/* Under the group's lock, between two pieces of work: rank 0 then says nothing, or that it is the
 * end; from others the question for the next piece may be there already. Does not wait. */
mp_status mp__group_look(mp_group *group);

/* Whether the group may be used. */
mp_status mp__group_check(const mp_group *group);

#endif
